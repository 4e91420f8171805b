-- The decision function of calendar, and the function for its handover: see calendar.go.
-- The starts of four periods are arguments, of which the second or third was the present
-- one when they were packed. At any other time nothing is decided: the caller packs them anew.
local unpack, pack = struct.unpack, struct.pack

-- Return the start of the period that t is in, and that of the next; nil for other periods.
local function find(t, a, b, c, d)
  if t < a or t >= d then return nil end
  if t >= c then return c, d end
  if t >= b then return b, c end
  return a, b
end

return function(v, i, s, j, t, n, p)
  local L, a, b, c, d, i = unpack('<ddddd', v, i)
  local start, next = find(t, a, b, c, d)
  if not start then return false, nil, i, j + 16, nil, 'OUTSIDE' end
  local u, stepped = 0, false
  if s then
    local S
    S, u = unpack('<dd', s, j)
    if u > 0 and S > t then
      stepped = true
    elseif S ~= start then
      u = 0
    end
  end
  local ok = true
  if not p then
    n = math.min(n, math.max(0, 2 * L - u))
  else
    ok = u + n + p <= L
  end
  if not ok then n = 0 end
  local new, reset
  if ok or stepped then
    new, reset = pack('<dd', start, u + n), u + n > 0 and next - t or 0
  end
  return ok, new, i, j + 16, reset, stepped
end, function(decide, v, a, s, j, t, i, move)
  local L, a1, b, c, d = unpack('<ddddd', v, a)
  local S, more = unpack('<dd', v, i)
  local _, state, behind, _, reset = decide(v, a, s, j, t, 0, nil)
  local start, u = unpack('<dd', state)
  local had, new = u, s and string.sub(s, j, j + 15) or string.rep('\0', 16)
  if not move then
    if S == start then u = u + math.min(more, math.max(0, L - u)) end
  else
    -- What counted before the clock was set, or was told by a clock ahead of this one,
    -- counts in the present period.
    local before = t - move
    local present = find(before, a1, b, c, d)
    if S == start or S > before or S == present or not present and before - S < math.max(b - a1, c - b, d - c) then
      u = math.max(u, more)
    end
  end
  if u > had then
    local _
    _, new, _, _, reset = decide(v, a, pack('<dd', start, u), 1, t, 0, nil)
  end
  return new, i + 16, behind, j + 16, reset
end
