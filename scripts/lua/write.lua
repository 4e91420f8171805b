-- Write the states of a zone, which are as if unused after reset microseconds. exp is
-- the time at which the value expires, in milliseconds, 0 if there is none. It is changed
-- only if the second in which the value has to expire has changed. Otherwise only the states
-- are written, at the position from, unless that is nil. head precedes them in the value.
local left = exp * 1000 - t - reset
if from and left >= 0 and left < 999000 then
  call('SETRANGE', key, from, new)
else
  local due, fresh = t + reset, exp == 0
  if left < 0 or left >= 999000 then exp = (due - due % 1000) / 1000 + 998 end
  new = pack('<d', exp) .. head .. new
  local ttl = exp - (t - t % 1000) / 1000
  if fresh then
    call('SET', key, new, 'PX', ttl)
  else
    call('SETRANGE', key, '0', new)
    call('PEXPIRE', key, ttl)
  end
end
