-- What meter.lua does in the usual case, for an ask of that one rule (no other is
-- as long): without a step or a delay, and written under the limit that it has
-- now. It unpacks and packs all at once. A level above the burst admits nothing,
-- so that it need not be cut to it.
if #v == 92 then
  local op, logs, n, code, L, l, w, cap, _, step, M, most, debt = unpack('<BxxxxxBdxxxxBddddddddd', v)
  if op == PLAIN and code == CODE and logs == 0 and step == 0 and M < 0 then
    local s, exp, D, usual = redis.pcall('GET', key), 0, 0, true
    if s then
      usual = #s == 40
      if usual then
        local a, f, L0, B0
        exp, a, f, L0, B0 = unpack('<ddddd', s)
        if a >= t then
          D = (a - t) * l + f
          usual = L0 == L and a - t - most - 1 <= B0 * w * debt / l
        end
      end
    end
    if usual then
      local ok = D + n * w <= cap
      if ok then
        D = D + n * w
        local f = D % l
        local q = (D - f) / l
        local reset = f > 0 and q + 1 or q
        if exp * 1000 >= t + reset then -- under one limit the need never falls
          call('SET', key, pack('<ddddd', exp, t + q, f, L, cap / w), 'KEEPTTL')
        else
          exp = math.ceil((t + reset) / 1000) + 998
          local ttl = exp - (t - t % 1000) / 1000
          call('SET', key, pack('<ddddd', exp, t + q, f, L, cap / w), 'PX', ttl)
        end
      end
      flags, seen = ok and (s and '\35' or '\3') or s and '\32' or '\0', s or ''
    end
  end
end
