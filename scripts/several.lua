-- Judge all rules of a zone. Nothing is decided here if one has to be mended or
-- if one paces: stepped_ says so.
do
  local code, ok, stepped, reset, new, views = code, true, false, 0, {}, ''
  at_, from_ = i, 9 + 8 * logs
  for r = 1, rules do
    local from = from_
    insert judges
    if stepped_ or delay_ then
      stepped = true
      break
    end
    if not ok_ then
      ok = false
    elseif reset_ > reset then
      reset = reset_
    end
    if view_ and s then views = views .. view_ end
    if ok then
      new[#new + 1] = state_
      if #state_ < from_ - from then new[#new + 1] = string.sub(s, from + #state_, from_ - 1) end
    end
    if r < rules then code, at_ = string.byte(v, at_), at_ + 1 end
  end
  ok_, stepped_, reset_, view_ = ok, stepped, reset, views
  state_ = ok and not stepped and table.concat(new)
end
