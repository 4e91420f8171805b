-- Write the states of a zone whose rules are as if unused after reset
-- microseconds. exp is the time at which the value expires, in milliseconds, 0 if
-- there is none. It is changed only if the second in which the value has to expire
-- has changed; otherwise only the states are written.
local due = t + reset
local keep = exp * 1000 >= due and (exp - 999) * 1000 < due
if keep and (not log or log.tail == log.old) then
  call('SETRANGE', key, log and '16' or '8', states)
else
  local fresh = exp == 0
  if not keep then exp = (due - due % 1000) / 1000 + 998 end
  local ttl = exp - (t - t % 1000) / 1000
  states = (log and pack('<dd', exp, log.tail) or pack('<d', exp)) .. states
  if fresh then
    call('SET', key, states, 'PX', ttl)
  else
    call('SETRANGE', key, '0', states)
    if not keep then call('PEXPIRE', key, ttl) end
  end
end
if log then
  for x = 1, #log.writes, 2 do call('SETRANGE', key, log.writes[x], log.writes[x + 1]) end
end
