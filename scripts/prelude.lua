-- What every chunk may use. A decision calls Redis' clock once; t is its
-- microseconds.
local unpack, pack = struct.unpack, struct.pack
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local byte, sub, rep, find, concat = string.byte, string.sub, string.rep, string.find, table.concat
local call = redis.call

local time = call('TIME')
local t = time[1] * 1000000 + time[2]

-- The value that is being judged: its key, the writes beyond its states that
-- the judges want, and the end of what is in use.
local key, writes, tail

-- A judge queues the writing of bytes at an offset of the value.
local function write_at(offset, bytes)
  writes[#writes + 1] = offset
  writes[#writes + 1] = bytes
end

-- A judge takes room at the end of the value.
local function reserve(size)
  local offset = tail
  tail = tail + size
  return offset
end

local judges = {}
