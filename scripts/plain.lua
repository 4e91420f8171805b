-- Plain asks, one zone without places and logs, are decided here, before the
-- functions are made that the others need: Redis runs all of the script with
-- each call, and making them takes longer than deciding. What is out of the
-- ordinary is left to them: a value that has to be mended, or is not ours, and
-- rules that leave together.
local PLAIN = 6

local out, rest = { ARGV[1], pack('<d', t) }, nil
local states, k = {}, 1
for a = 2, #ARGV do
  local v = ARGV[a]
  local op, keys = byte(v, 1, 2)
  local plain = op == PLAIN
  if plain then
    local rules, n, size, i = unpack('<BxxxdI4', v, 4)
    key = KEYS[k]
    local s, j, exp = redis.pcall('GET', key), 9, 0
    if not s then
      s = nil
    elseif #s == size then
      exp = unpack('<d', s)
    else
      plain = false -- also an error, which is an empty table
    end
    local ok, reset = true, 0
    for r = 1, plain and rules or 0 do
      local code = byte(v, i)
      local admits, left, stepped, delay
      admits, states[r], i, j, left, stepped, delay = (judges[code] or load(code))(v, i + 1, s, j, t, n, 0)
      ok = ok and admits
      if stepped or delay and rules > 1 then plain = false end
      if left and left > reset then reset = left end
    end
    if plain and ok then
      local ttl
      exp, ttl = expiry(exp, reset)
      local value = pack('<d', exp) .. concat(states, '', 1, rules)
      if ttl then
        call('SET', key, value, 'PX', ttl)
      else
        call('SET', key, value, 'KEEPTTL')
      end
      out[2 * a - 1], out[2 * a] = s and '\35' or '\3', s or ''
    elseif plain then
      out[2 * a - 1], out[2 * a] = s and '\32' or '\0', s or ''
    end
  end
  if not plain then
    rest = rest or {}
    rest[#rest + 1], rest[#rest + 2] = a, k
  end
  k = k + keys
end
if not rest then return concat(out) end
