-- The decision function of sliding_window: see sliding_window.go. The state is
-- {index of the newest part, counters...}, the newest first.
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
  if p == false then
    -- Charge the counters of a debt by their age. The state has last + 1 counters,
    -- of which k + 1 are in the window.
    local top, last = math.max(at, newest), words - 2
    local age, owed, counters, from = top - newest, {}, {}, nil
    from, i = unpack('<d', v, i)
    for x = 0, last do
      counters[x] = c and x >= age and c[2 + x - age] or 0
      owed[x], i = unpack('<d', v, i)
    end
    for x = 0, last do
      local y = math.max(0, top - from + x)
      local add = math.min(owed[x], math.max(0, 2 * L - u))
      if add > 0 and y <= last then
        counters[y], u = counters[y] + add, u + add
      end
    end
    new, reset = pack('<d', top), 0
    for x = 0, last do
      new = new .. pack('<d', counters[x])
      if reset == 0 and counters[x] > 0 then reset = math.max(0, (top - x + k + 1) * b - t) end
    end
  else
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
  end
  return ok, new, i, j + size, reset, stepped
end
