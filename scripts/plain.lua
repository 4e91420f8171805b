-- Plain asks, one zone without places, are decided here, before the functions
-- are made that the others need: Redis runs all of the script with each call,
-- and making them takes longer than deciding. What is out of the ordinary is left
-- to them: a state that has to be mended, a value that is none of ours, and
-- queues that leave together.
local PLAIN = 6

local asks, head, out, rest = #ARGV, ARGV[1] .. pack('<d', t), nil, nil
local new, k = nil, 1
for a = 2, asks do
  local v = ARGV[a]
  local op, keys = byte(v, 1, 2)
  local plain, answer = op == PLAIN, nil
  if plain then
    local rules, logs, n, size, i = unpack('<BxxBdI4', v, 4)
    local key, s, exp, seen, log = KEYS[k], nil, 0, '', nil
    if logs == 0 then
      s = redis.pcall('GET', key)
      if not s then
        s = nil
      elseif #s == size then
        exp, seen = unpack('<d', s), s
      else
        plain = false -- it is none of ours, or an error
      end
    else
      s, exp, i, log = read(key, logs, size, v, i)
      if s then seen = string.sub(s, 17, size) end
      plain = s ~= false
    end
    local j, ok, reset, state = 9 + 8 * logs, true, 0, nil
    for r = 1, plain and rules or 0 do
      local code = byte(v, i)
      local admits, left, stepped, delay, view
      admits, state, i, j, left, stepped, delay, view = (judges[code] or load(code))(v, i + 1, s, j, t, n, 0, nil, log)
      ok = ok and admits
      if stepped or delay and rules > 1 then plain = false end
      if left and left > reset then reset = left end
      if view and s then seen = seen .. view end
      if rules > 1 then
        new = new or { state, state, state, state }
        new[r] = state
      end
    end
    if plain then
      if ok then write(key, exp, reset, rules == 1 and state or concat(new, '', 1, rules), log) end
      answer = (ok and (s and '\35' or '\3') or s and '\32' or '\0') .. seen
    end
  end
  if plain and asks == 2 then return head .. answer end
  out = out or { head }
  out[a] = answer or ''
  if not plain then
    rest = rest or {}
    rest[#rest + 1], rest[#rest + 2] = a, k
  end
  k = k + keys
end
if not rest then return concat(out) end
