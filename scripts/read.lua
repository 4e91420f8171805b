-- Read a value of that size at key, or with logs of at least that size, and of it
-- as much as prefix says. s becomes the value, nil if there is none or false if it
-- is none of ours, with what was found instead of exp, when it expires; log is
-- what a value with logs has beside its states: its key, the end of what is in use
-- and was, and what is to be written there ({offset, bytes} one after the other).
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
