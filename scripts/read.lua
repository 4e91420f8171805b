-- Read a value of that size at key, or with logs of at least that size, of which
-- ask v says at i how much to read. s becomes the value, nil if there is none or
-- false if it is none of ours, with what was found instead of exp, when it
-- expires; i is where the ask goes on; log is what a value with logs has beside
-- its states: its key, the end of what is in use, and what is to be written there
-- ({offset, bytes} one after the other).
if logs == 0 then
  s = redis.pcall('GET', key)
else
  local prefix
  prefix, i = unpack('<I4', v, i)
  s = redis.pcall('GETRANGE', key, '0', prefix == 2048 and '2047' or prefix - 1)
  log = { key = key, tail = size, writes = {} }
end
if not s or s == '' then
  s, exp = nil, 0
elseif #s ~= size and (not log or #s < size) then
  s, exp = false, s
elseif log then
  log.seen = true
  exp, log.tail = unpack('<dd', s)
else
  exp = unpack('<d', s)
end
