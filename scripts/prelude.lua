-- What all asks need. A decision calls Redis' clock once; t is its microseconds.
-- Numbers that are the same each time go to Redis as text, which it would
-- otherwise have to make of them.
local unpack, pack, call, try = struct.unpack, struct.pack, redis.call, redis.pcall
local KEYS, ARGV = KEYS, ARGV

local time = call('TIME')
local t = time[1] * 1000000 + time[2]

-- Who asked has stopped waiting: nothing is done any more.
if t > unpack('<d', ARGV[1], 9) then return ARGV[1] .. pack('<d', -t) end
