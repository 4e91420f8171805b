-- The decision function of fixed_window, and the function for its handover: see
-- fixed_window.go.
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
  if not p then
    n = math.min(n, math.max(0, 2 * L - u))
  else
    ok = u + n + p <= L
  end
  if not ok then n = 0 end
  local new, reset
  if ok or stepped then
    if u == 0 then S = start end
    new, reset = pack('<dd', S, u + n), S + W - t
  end
  return ok, new, i, j + 16, reset, stepped
end, function(decide, v, a, s, j, t, i, move)
  local L, W, align, behind = unpack('<ddd', v, a)
  -- Return the state at position j of s if its window is open.
  local function open(s, j)
    local _, state = decide(v, a, s, j, t, 0, nil)
    return unpack('<dd', state)
  end
  local S, u = open(s, j)
  local start, more = unpack('<dd', v, i)
  if move then
    if align == 1 and start + W > t - move then
      start = t - t % W -- what counted before the clock was set counts in the present window
    else
      start = start + move
    end
    start, more = open(pack('<dd', start, more), 1)
    if u > 0 then start, more = math.min(S, start), more > 0 and math.max(u, more) or 0 end
  else
    start = math.min(start, align == 1 and t - t % W or t)
    more = start + W > t and math.min(more, math.max(0, L - u)) or 0
    if more > 0 and u > 0 then start, more = S, u + more end
  end
  if more == 0 then return s and string.sub(s, j, j + 15) or string.rep('\0', 16), i + 16, behind, j + 16, u > 0 and S + W - t or 0 end
  return pack('<dd', start, more), i + 16, behind, j + 16, start + W - t
end
