-- The arithmetic of sliding_window.go. Formats are made once per number of parts.
local unpack, pack, sub, rep = struct.unpack, struct.pack, string.sub, string.rep
local max, min = math.max, math.min
local formats = {}

-- Charge every counter of a debt by its age, the newest first. c are the counters
-- as they are, age how many parts ago their newest was, u what they hold.
local function owe(v, i, c, age, u, L, k, at)
  local owed, counters, newest = {}, {}, nil
  newest, i = unpack('<d', v, i)
  for x = 0, k do
    counters[x] = c and x >= age and c[2 + x - age] or 0
    owed[x], i = unpack('<d', v, i)
  end
  for x = 0, k do
    local y = max(0, at - newest + x)
    local d = min(owed[x], max(0, 2 * L - u))
    if d > 0 and y <= k then
      counters[y], u = counters[y] + d, u + d
    end
  end
  local new, reset = { pack('<d', at) }, 0
  for x = 0, k do
    new[x + 2] = pack('<d', counters[x])
    if reset == 0 and counters[x] > 0 then reset = at - x + k + 1 end
  end
  return table.concat(new), reset, i
end

return function(v, i, s, j, t, n, p)
  local L, k, b
  L, k, b, i = unpack('<ddd', v, i)
  local size = (k + 2) * 8
  local at = (t - t % b) / b
  local newest, u, stepped, first = at, 0, false, 0
  local c
  if s then
    local format = formats[k]
    if not format then
      format = '<' .. rep('d', k + 2)
      formats[k] = format
    end
    c = { unpack(format, s, j) }
    newest = c[1]
    if newest > at then newest, stepped = at, true end
    local age = at - newest
    for x = 2, k + 2 - age do u = u + c[x] end
    if age == 0 then first = c[2] end
  end
  local ok = true
  if p == false then
    local new, reset
    new, reset, i = owe(v, i, c, at - newest, u, L, k, at)
    return true, new, i, j + size, max(0, reset * b - t), stepped
  end
  if not p then
    n = min(n, max(0, 2 * L - u))
  else
    ok = u + n + p <= L
  end
  if not ok then n = 0 end
  local new, reset
  if ok or stepped then
    if not c then
      new = pack('<dd', at, n) .. rep('\0', k * 8)
      reset = n > 0 and (at + k + 1) * b - t or 0
    else
      local age = ok and at - newest or 0
      if age == 0 then
        new = pack('<dd', newest, first + n) .. sub(s, j + 16, j + size - 1)
      elseif age > k then
        new = pack('<dd', at, n) .. rep('\0', k * 8)
      else
        new = pack('<dd', at, n) .. rep('\0', (age - 1) * 8) .. sub(s, j + 8, j + size - 1 - age * 8)
      end
      reset = 0
      if n > 0 then
        reset = (at + k + 1) * b - t
      else
        for x = 2, k + 2 do
          if c[x] > 0 then reset = (newest - x + 2 + k + 1) * b - t break end
        end
      end
    end
  end
  return ok, new, i, j + size, reset, stepped
end
