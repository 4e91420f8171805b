-- Write the states of a zone whose rules forget in reset microseconds. A time to
-- live is rewritten only when the need has left the second that it was set with
-- (exp; 0: there is none).
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
