-- The arithmetic of meter.go: gcra, token_bucket and leaky_bucket.
local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

-- A level written under another limit, in our units: the same cost, rounded up.
local function rescale(ahead, f, l0, w0, w, cap)
  if ahead > floor(4503599627370496 / l0) then return cap end
  local d = ahead * l0 + f
  local used, part = floor(d / w0), d % w0
  if used >= cap / w then return cap end
  local level = used * w
  if part > 0 then level = level + floor(part * w / w0) + 1 end
  return min(level, cap)
end

return function(v, i, s, j, now, n, p, turn)
  local L, l, w, cap, W, step, M, most, debt
  L, l, w, cap, W, step, M, most, debt, i = unpack('<ddddddddd', v, i)
  local t = now
  if step > 0 then t = now - now % step end
  local D, stepped = 0, false
  if s then
    local a, f, L0, B0 = unpack('<dddd', s, j)
    if a >= t and L0 > 0 then
      local l0, w0 = l, w
      if L0 ~= L then
        local g = gcd(L0, W)
        l0, w0 = L0 / g, W / g
      end
      -- Further ahead than the rule that wrote it allows: the clock was set back.
      if a - t > floor(B0 * w0 * debt / l0) + most + 1 then
        D, stepped = cap, true
      elseif L0 ~= L then
        D = rescale(a - t, f, l0, w0, w, cap)
      else
        D = (a - t) * l + f
        if B0 * w ~= cap then D = min(D, cap) end
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
    new = pack('<dddd', t + floor(D / l), D % l, L, cap / w)
    if step > 0 then
      reset = t + ceil(D / (step * l)) * step - now
    else
      reset = ceil(D / l)
    end
  end
  return ok, new, i, j + 32, reset, stepped, delay
end
