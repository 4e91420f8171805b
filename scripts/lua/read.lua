-- Read the value at key, which has that size, or with logs at least that size; of
-- a value with logs, read the first prefix bytes. s becomes the value, nil if there
-- is none, or false if its type or size is another; exp becomes the time at which
-- it expires, or what was found instead. log describes a value with logs: its key,
-- where the used part ends now and ended before (tail and old), and what is to be
-- written behind the states (writes: offset, bytes, ...). Numbers that are always
-- the same are passed to Redis as strings, to save their conversion.
if logs == 0 then
  s = try('GET', key)
else
  s = try('GETRANGE', key, '0', prefix == 2048 and '2047' or prefix - 1)
  log = { key = key, tail = size, writes = {} }
end
if not s or s == '' then
  s, exp = nil, 0
elseif #s ~= size and (not log or #s < size) then
  s, exp = false, s
elseif log then
  exp, log.tail = unpack('<dd', s)
  log.old = log.tail
else
  exp = unpack('<d', s)
end
