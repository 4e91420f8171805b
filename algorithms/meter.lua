-- The decision function of gcra, token_bucket and leaky_bucket, and the function for
-- their handover: see meter.go.
local unpack, pack = struct.unpack, struct.pack

return function(v, i, s, j, t, n, p, turn)
  local L, l, w, cap, W, step, M, most, i = unpack('<dddddddd', v, i)
  local tau = t
  if step > 0 then tau = t - t % step end
  local D, stepped, kept, top = 0, false, 0, cap
  if s then
    local a, f, L0, most0 = unpack('<dddd', s, j)
    -- A charge whatever the verdict, and a rule with a higher limit, keep a level that was
    -- written under another rule.
    if not p or L0 < L then
      kept = math.min(most0, math.floor(9007199254740992 / w))
      top = math.max(cap, kept * w)
    end
    if a >= tau and L0 > 0 then
      local l0, w0 = l, w
      if L0 ~= L then
        local g, b = L0, W
        while b ~= 0 do g, b = b, g % b end
        l0, w0 = L0 / g, W / g
      end
      -- Further ahead than the rule that wrote it can be: the clock was set back.
      if a - tau - 1 > most0 * w0 / l0 then
        D, stepped = cap, true
      elseif L0 == L then
        D = (a - tau) * l + f
      else
        -- Written under another limit: convert it to the same cost, rounded up.
        D = top
        if a - tau <= 9007199254740992 / l0 then
          local d = (a - tau) * l0 + f
          local used, part = math.floor(d / w0), d % w0
          D = used * w
          if part > 0 then D = D + math.floor(part * w / w0) + 1 end
          if used >= top / w or D > top then D = top end
        end
        -- From now on it drains at a higher limit.
        if p and L0 < L then
          stepped = 'FOLLOWS'
          if D > cap then most = math.max(most, kept) end
        end
      end
    end
  end
  local ok, delay = true, nil
  if not p then
    local highest = math.max(2 * cap / w, math.floor(4503599627370496 / w))
    D = math.max(D, math.min(D + math.min(n, highest) * w, highest * w))
    most = math.max(most, kept, math.ceil(D / w))
  elseif M >= 0 then
    ok = D + n * w <= cap and D <= M * l
    if ok and n > 0 then
      delay = math.ceil(D / l)
      if turn and turn > delay then D = turn * l end
      D = D + n * w
    end
  else
    ok = D + (n + p) * w <= cap
    if ok then D = D + n * w end
  end
  local new, reset
  if ok or stepped then
    local f = D % l
    local q = (D - f) / l
    new = pack('<dddd', tau + q, f, L, D > cap and most or cap / w)
    if step > 0 then
      reset = tau + math.ceil(D / (step * l)) * step - t
    elseif f > 0 then
      reset = q + 1
    else
      reset = q
    end
  end
  return ok, new, i, j + 32, reset, stepped, delay
end, function(decide, v, a, s, j, now, i, move)
  local _, l, _, cap, _, step = unpack('<dddddd', v, a)
  local t = step > 0 and now - now % step or now
  -- Return the state at position j of s as this rule writes it, and its level.
  local function written(s, j)
    local _, state = decide(v, a, s, j, now, 0, nil)
    local at, f = unpack('<dd', state)
    return state, (at - t) * l + f
  end
  local state, D = written(s, j)
  local new = s and string.sub(s, j, j + 31) or string.rep('\0', 32)
  if move then
    local at, rest = unpack('<dc24', v, i)
    local told, level = written(pack('<d', at + move) .. rest, 1)
    if level > D then new = told end
    i = i + 32
  else
    local owed = unpack('<d', v, i)
    if owed > 0 then
      D = math.max(D, math.min(D + math.min(owed, cap), cap))
      new = pack('<dd', t + (D - D % l) / l, D % l) .. string.sub(state, 17)
    end
    i = i + 8
  end
  local _, _, behind, _, reset = decide(v, a, new, 1, now, 0, nil)
  return new, i, behind, j + 32, reset
end
