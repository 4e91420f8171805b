-- The decision function of fixed_window: see fixed_window.go.
local unpack, pack = struct.unpack, struct.pack

return function(v, i, s, j, t, n, p)
  local L, W, align, i = unpack('<ddd', v, i)
  local S, u, stepped = 0, 0, false
  local start = align == 1 and t - t % W or t
  if s then
    S, u = unpack('<dd', s, j)
    if u > 0 and S > t then
      S, stepped = start, true
    end
    if t >= S + W then u = 0 end
  end
  local ok = true
  if p == false then
    local from
    from, n, i = unpack('<dd', v, i)
    start = math.min(from, start)
    if start + W > t then n = math.min(n, math.max(0, L - u)) else n = 0 end
  elseif not p then
    n = math.min(n, math.max(0, 2 * L - u))
  else
    ok = u + n + p <= L
  end
  if not ok then n = 0 end
  local new, reset
  if p == false and n == 0 and not stepped then
    new, reset = s and '' or string.rep('\0', 16), math.max(0, S + W - t)
  elseif ok or stepped then
    if u == 0 then S = start end
    new, reset = pack('<dd', S, u + n), S + W - t
  end
  return ok, new, i, j + 16, reset, stepped
end
