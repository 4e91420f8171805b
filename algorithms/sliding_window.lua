-- The arithmetic of sliding_window.go. Formats are made once per number of words.
local unpack, pack, sub, rep = struct.unpack, struct.pack, string.sub, string.rep
local max, min = math.max, math.min
local formats = {}

-- Charge every counter of a debt by its age, the newest first. c are the counters
-- as they are, age how many parts before top their newest was, u what they hold.
-- A state has last + 1 counters, of which those of k + 1 parts are in the window.
local function owe(v, i, c, age, u, L, k, top, last)
  local owed, counters, newest = {}, {}, nil
  newest, i = unpack('<d', v, i)
  for x = 0, last do
    counters[x] = c and x >= age and c[2 + x - age] or 0
    owed[x], i = unpack('<d', v, i)
  end
  for x = 0, last do
    local y = max(0, top - newest + x)
    local d = min(owed[x], max(0, 2 * L - u))
    if d > 0 and y <= last then
      counters[y], u = counters[y] + d, u + d
    end
  end
  local new, reset = { pack('<d', top) }, 0
  for x = 0, last do
    new[x + 2] = pack('<d', counters[x])
    if reset == 0 and counters[x] > 0 then reset = top - x + k + 1 end
  end
  return table.concat(new), reset, i
end

return function(v, i, s, j, t, n, p)
  local L, k, b, d
  L, k, b, d, i = unpack('<dddd', v, i)
  local words, at = k + 2, (t - t % b) / b
  local ahead = at -- the part in which a lease ends
  if d > 0 then words, ahead = k + 3, (t + d - (t + d) % b) / b end
  local size = words * 8
  local newest, u, stepped = at, 0, false
  local c
  if s then
    local format = formats[words]
    if not format then
      format = '<' .. rep('d', words)
      formats[words] = format
    end
    c = { unpack(format, s, j) }
    newest = c[1]
    if newest > ahead then newest, stepped = ahead, true end
    for x = 2, k + 2 - at + newest do u = u + c[x] end
  end
  local ok = true
  if p == false then
    local new, reset
    local top = max(at, newest)
    new, reset, i = owe(v, i, c, top - newest, u, L, k, top, words - 2)
    return true, new, i, j + size, max(0, reset * b - t), stepped
  end
  if not p then
    n, at = min(n, max(0, 2 * L - u)), ahead
  else
    ok = u + n + p <= L
  end
  if not ok then n = 0 end
  local new, reset
  if ok or stepped then
    if not c then
      new = pack('<dd', at, n) .. rep('\0', size - 16)
      reset = n > 0 and (at + k + 1) * b - t or 0
    else
      local age = ok and at - newest or 0
      if age == 0 then
        new = pack('<dd', newest, c[2] + n) .. sub(s, j + 16, j + size - 1)
      elseif age < 0 then -- something was charged in advance
        new = pack('<ddd', newest, c[2], c[3] + n) .. sub(s, j + 24, j + size - 1)
      elseif age > words - 2 then
        new = pack('<dd', at, n) .. rep('\0', size - 16)
      else
        new = pack('<dd', at, n) .. rep('\0', (age - 1) * 8) .. sub(s, j + 8, j + size - 1 - age * 8)
      end
      reset = 0
      if n > 0 and (age >= 0 or c[2] == 0) then
        reset = (at + k + 1) * b - t
      else
        for x = 2, words do
          if c[x] > 0 then reset = (newest - x + 2 + k + 1) * b - t break end
        end
      end
    end
  end
  return ok, new, i, j + size, reset, stepped
end
