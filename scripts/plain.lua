-- Plain asks, one zone without places, are decided here, before the functions
-- are made that the others need: Redis runs all of the script with each call,
-- and making them takes longer than deciding. What is out of the ordinary in one
-- (a state that has to be mended, a value that is none of ours, queues that leave
-- together) is left to them. Where a line begins with "insert", the text of that
-- name is put: what stands in a function has to be called, and made before. Lua
-- hashes every byte of every string that is made, so that few are.
local PLAIN = 6

local asks, a, k, m, out, rest, judges = #ARGV, 2, 1, 1, nil, nil, nil
while a <= asks do
  local v = ARGV[a] -- and those that are empty behind it are the same
  local op, keys, rules, logs, n, size, prefix, code, i = unpack(#v > 23 and '<BBxBxxBdI4I4B' or '<BB', v)
  if op ~= PLAIN then
    repeat
      local flags, seen, views
      insert answer
    until ARGV[a] ~= ''
  elseif rules > 1 then
    insert several
  else
    insert lone
  end
end
if not rest then return table.concat(out) end
