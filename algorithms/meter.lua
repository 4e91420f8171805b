-- The arithmetic of meter.go: gcra, token_bucket and leaky_bucket.
local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

-- A level written under another limit, in our units: the same cost, rounded up.
local function rescale(ahead, f, L0, w, cap, W)
  local g = gcd(L0, W)
  local l0, w0 = L0 / g, W / g
  if ahead > floor(4503599627370496 / l0) then return cap end
  local d = ahead * l0 + f
  local used, part = floor(d / w0), d % w0
  if used >= cap / w then return cap end
  local level = used * w
  if part > 0 then level = level + floor(part * w / w0) + 1 end
  return min(level, cap)
end

return function(v, i, s, j, now, n, p, turn)
  local L, l, w, cap, W, step, M, over
  L, l, w, cap, W, step, M, over, i = unpack('<dddddddd', v, i)
  local t = now
  if step > 0 then t = now - now % step end
  local D, stepped = 0, false
  if s then
    local a, f, L0 = unpack('<ddd', s, j)
    if a >= t and L0 > 0 then
      if L0 ~= L then
        D = rescale(a - t, f, L0, w, cap, W)
      elseif a - t > floor(over / l) + 1 then
        D, stepped = cap, true
      else
        D = (a - t) * l + f
      end
    end
  end
  local ok, delay = true, nil
  if not p then
    D = max(D, min(D + min(n, 2 * cap / w) * w, 2 * cap))
  elseif M >= 0 then
    ok = D + n * w <= cap and D <= M * l
    if ok and n > 0 then
      delay = ceil(D / l)
      if turn and turn > delay then D = turn * l end
      D = D + n * w
    end
  else
    ok = D + (n + p) * w <= cap
    if ok then D = D + n * w end
  end
  local new, reset
  if ok or stepped then
    new = pack('<ddd', t + floor(D / l), D % l, L)
    if step > 0 then
      reset = t + ceil(D / (step * l)) * step - now
    else
      reset = ceil(D / l)
    end
  end
  return ok, new, i, j + 24, reset, stepped, delay
end
