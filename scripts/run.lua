-- Decide the asks that are the same as ask v, each for its key.
repeat
  local key, flags, seen, views, s, exp, log = KEYS[k], nil, '', nil, nil, nil, nil
  insert read
  if s ~= false then
    local ok_, state_, at_, from_, reset_, stepped_, delay_, view_
    insert judge
    if not stepped_ then
      if s and log then
        seen, views = string.sub(s, 17, size), view_
      elseif s then
        seen = s
      end
      if ok_ then
        local states, reset = state_, reset_
        insert write
      end
      flags = ok_ and (s and '\35' or '\3') or s and '\32' or '\0'
      if asks == 2 then return ARGV[1] .. pack('<d', t) .. flags .. seen .. (views or '') end
    end
  end
  insert answer
until ARGV[a] ~= ''
