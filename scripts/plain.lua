-- Plain asks, one zone without places, are decided here, before the functions
-- are made that the others need: Redis runs all of the script with each call,
-- and making them takes longer than deciding. What is out of the ordinary in one
-- (a state that has to be mended, a value that is none of ours, queues that leave
-- together) is left to them. Where a line begins with "insert", the text of that
-- name is put: what stands in a function has to be called, and made before.
local PLAIN = 6

local asks, out, rest = #ARGV, nil, nil
local judges, new, k = nil, nil, 1
for a = 2, asks do
  local v, key = ARGV[a], KEYS[k]
  local keys, flags, seen = 1, nil, nil
  insert quick
  if not flags then
    local op
    op, keys = byte(v, 1, 2)
    local plain = op == PLAIN
    if plain then
      judges = judges or { false, false, false, false }
      local rules, logs, n, size, i = unpack('<BxxBdI4', v, 4)
      local s, exp, log
      insert read
      seen = s and (log and string.sub(s, 17, size) or s) or ''
      plain = s ~= false
      local j, ok, reset, states = 9 + 8 * logs, true, 0, nil
      for r = 1, plain and rules or 0 do
        local code = byte(v, i)
        local judge = judges[code]
        insert judge
        local admits, left, stepped, delay, view
        admits, states, i, j, left, stepped, delay, view = judge(v, i + 1, s, j, t, n, 0, nil, log)
        ok = ok and admits
        if stepped or delay and rules > 1 then plain = false end
        if left and left > reset then reset = left end
        if view and s then seen = seen .. view end
        if rules > 1 then
          new = new or { states, states, states, states }
          new[r] = states
        end
      end
      if plain then
        if ok then
          if rules > 1 then states = concat(new, '', 1, rules) end
          insert write
        end
        flags = ok and (s and '\35' or '\3') or s and '\32' or '\0'
      end
    end
  end
  if flags and asks == 2 then return ARGV[1] .. pack('<d', t) .. flags .. seen end
  out = out or { ARGV[1] .. pack('<d', t) }
  if flags then
    out[a] = flags .. seen
  else
    out[a], rest = '', rest or {}
    rest[#rest + 1], rest[#rest + 2] = a, k
  end
  k = k + keys
end
if not rest then return concat(out) end
