-- Write the states of a zone that may have logs. Where the used part of the value ends
-- precedes the states, and is written if it has changed.
local from, head = '8', ''
if log then from, head = log.tail == log.old and '16', pack('<d', log.tail) end
-- include write.lua
if log then
  for x = 1, #log.writes, 2 do call('SETRANGE', key, log.writes[x], log.writes[x + 1]) end
end
