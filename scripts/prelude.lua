-- What all asks need. A decision calls Redis' clock once; t is its microseconds.
-- Numbers that are the same each time go to Redis as text, which it would
-- otherwise have to make of them.
local unpack, pack, byte, concat, call = struct.unpack, struct.pack, string.byte, table.concat, redis.call
local KEYS, ARGV = KEYS, ARGV

local time = call('TIME')
local t = time[1] * 1000000 + time[2]

-- Who asked has stopped waiting: nothing is done any more.
if t > unpack('<d', ARGV[1], 9) then return ARGV[1] .. pack('<d', -t) end

-- Read a value of that size, or with logs of at least that size, of which ask v
-- says at i how much to read. Returns it, nil if there is none or false if it is
-- none of ours; when it expires; where the ask goes on; and what a value with
-- logs has beside its states: its key, the end of what is in use, and what is to
-- be written there ({offset, bytes} one after the other).
local function read(key, logs, size, v, i)
  local s, log
  if logs == 0 then
    s = redis.pcall('GET', key)
  else
    local prefix
    prefix, i = unpack('<I4', v, i)
    s = redis.pcall('GETRANGE', key, '0', prefix == 2048 and '2047' or prefix - 1)
    log = { key = key, tail = size, writes = {} }
  end
  if not s or s == '' then return nil, 0, i, log end
  if #s ~= size and (not log or #s < size) then return false, s, i, log end
  if log then log.seen, log.tail = true, unpack('<d', s, 9) end
  return s, unpack('<d', s), i, log
end

-- Write the states of a zone whose rules forget in reset microseconds. A time to
-- live is rewritten only when the need has left the second that it was set with
-- (exp; 0: there is none).
local function write(key, exp, reset, states, log)
  local need = math.ceil((t + reset) / 1000)
  local keep = exp >= need and exp <= need + 998
  if not keep then exp = need + 998 end
  local ttl = exp - (t - t % 1000) / 1000
  if log then
    states = pack('<dd', exp, log.tail) .. states
    if not log.seen then
      call('SET', key, states, 'PX', ttl)
    else
      if not keep then call('PEXPIRE', key, ttl) end
      call('SETRANGE', key, '0', states)
    end
    for x = 1, #log.writes, 2 do call('SETRANGE', key, log.writes[x], log.writes[x + 1]) end
  elseif keep then
    call('SET', key, pack('<d', exp) .. states, 'KEEPTTL')
  else
    call('SET', key, pack('<d', exp) .. states, 'PX', ttl)
  end
end
