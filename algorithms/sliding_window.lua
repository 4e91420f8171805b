-- The decision function of sliding_window, and the function for its handover: see
-- sliding_window.go. The state is {index of the newest part, counters...}, the newest first.
local unpack, pack = struct.unpack, struct.pack

return function(v, i, s, j, t, n, p)
  local L, k, b, d, i = unpack('<dddd', v, i)
  local words, at = k + 2, (t - t % b) / b
  local ahead = at -- the part in which a lease ends
  if d > 0 then words, ahead = k + 3, (t + d - (t + d) % b) / b end
  local size = words * 8
  local newest, u, stepped, c = at, 0, false, nil
  if s then
    c = { unpack(words == 12 and '<dddddddddddd' or '<' .. string.rep('d', words), s, j) }
    newest = c[1]
    if newest > ahead then newest, stepped = ahead, true end
    for x = 2, k + 2 - at + newest do u = u + c[x] end
  end
  local ok, new, reset = true, nil, nil
  if not p then
    n, at = math.min(n, math.max(0, 2 * L - u)), ahead
  else
    ok = u + n + p <= L
  end
  if not ok then n = 0 end
  local age = ok and at - newest or 0
  if not ok and not stepped then
    new = nil
  elseif not c or age > words - 2 then
    new = pack('<dd', at, n) .. string.rep('\0', size - 16)
  elseif age == 0 then
    new = pack('<dd', newest, c[2] + n)
  elseif age < 0 then -- the newest part was charged in advance
    new = pack('<ddd', newest, c[2], c[3] + n)
  else
    new = pack('<dd', at, n) .. string.rep('\0', (age - 1) * 8) .. string.sub(s, j + 8, j + size - 1 - age * 8)
  end
  if new and n > 0 and (not c or age >= 0 or c[2] == 0) then
    reset = (at + k + 1) * b - t
  elseif new then
    reset = 0
    for x = 2, c and words or 0 do
      if c[x] > 0 then
        reset = (newest - x + 2 + k + 1) * b - t
        break
      end
    end
  end
  return ok, new, i, j + size, reset, stepped
end, function(decide, v, a, s, j, t, i, move)
  local L, k, b, d, behind = unpack('<dddd', v, a)
  local words = d > 0 and k + 3 or k + 2
  local size, form = words * 8, '<' .. string.rep('d', words)
  -- Return the counters at position j of s, from the part in which a lease ends on.
  local function counters(s, j)
    local _, state = decide(v, a, s, j, t, 0, nil)
    if #state < size then state = state .. string.sub(s, j + #state, j + size - 1) end
    return { unpack(form, state) }
  end
  local c, changed = counters(s, j), false
  local oldest = k + 2 - (t - t % b) / b + c[1] -- of those in the window
  if move then
    local newest, rest = unpack('<dc' .. size - 8, v, i)
    local told = counters(pack('<d', newest + (move - move % b) / b) .. rest, 1)
    local mine, others, sum = 0, 0, 0
    for x = 2, oldest do
      mine, others = mine + c[x], others + told[x]
      changed = changed or others > mine
      local most = math.max(mine, others)
      c[x], sum = most - sum, most
    end
  else
    -- Charge the counters of a debt by their age.
    local owed, u = { unpack(form, v, i) }, 0
    for x = 2, oldest do u = u + c[x] end
    for x = 2, words do
      local y = 2 + math.max(0, c[1] - owed[1] + x - 2)
      local add = math.min(owed[x], math.max(0, 2 * L - u))
      if add > 0 and y <= oldest then
        c[y], u, changed = c[y] + add, u + add, true
      end
    end
  end
  local state, reset = '', 0
  for x = 1, words do
    state = state .. pack('<d', c[x])
    if reset == 0 and x > 1 and c[x] > 0 then reset = math.max(0, (c[1] - x + 2 + k + 1) * b - t) end
  end
  if not changed then state = s and string.sub(s, j, j + size - 1) or string.rep('\0', size) end
  return state, i + size, behind, j + size, reset
end
