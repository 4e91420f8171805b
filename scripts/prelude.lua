-- What every chunk may use. A decision calls Redis' clock once; t is its
-- microseconds.
local unpack, pack = struct.unpack, struct.pack
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local byte, char, sub, rep, find, concat = string.byte, string.char, string.sub, string.rep, string.find, table.concat
local call, pcall = redis.call, pcall
local KEYS, ARGV = KEYS, ARGV

local time = call('TIME')
local t = time[1] * 1000000 + time[2]

-- The value that is being judged: its key, the writes beyond its states that
-- the judges want ({offset, bytes} one after the other), and the end of what is
-- in use.
local key, writes, tail

-- When a key has to expire whose rules forget in reset microseconds, and in how
-- many milliseconds that is. A time to live that was set for exp is kept, and
-- none is returned, until the need has left the second that it was set with.
local function expiry(exp, reset)
  local need = ceil((t + reset) / 1000)
  if exp >= need and exp <= need + 998 then return exp end
  exp = need + 998
  local ttl = exp - floor(t / 1000)
  return exp, ttl
end
