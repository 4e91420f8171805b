-- The mark of a key that was reset lately is the time when it was. What an instance was told
-- of the key before, or began to owe, is neither put back nor charged.

-- Reset keys: each precedes its mark, which is kept for that many milliseconds; 0: it gets none.
-- With one key the entry is of a node that has not both: the mark is set (1) or the key deleted (2).
local function reset_keys(v, k)
  local count, part, ttl = unpack('<xBBd', v)
  if part ~= 2 and ttl > 0 then call('SET', KEYS[k + count - 1], pack('<d', t), 'PX', ttl) end
  if part ~= 1 then call('DEL', KEYS[k]) end
  return '\0'
end

-- Return when a key was reset, by its mark; nil if it was not lately. A mark of a clock ahead of this
-- one, and one of an earlier version, which has no time, get the present time: they are older.
local function reset_time(mark)
  local s = call('GET', mark)
  if not s then return nil end
  local at = #s == 8 and unpack('<d', s) or t + 1
  if at <= t then return at end
  call('SETRANGE', mark, 0, pack('<d', t))
  return t
end

-- Put a reset of some time ago in force again: Redis has lost it, and if so is told, may have gone back to a time
-- before it. Then a key that exists without the mark is of before the reset, or was told by it to an instance since Redis
-- is back: nothing of that is put back. by is the time of the reset as the clock was then: where it was set since, or that of
-- the instance stood still, t - ago is another.
local function reset_again(v, k)
  local ttl, ago, by, older = unpack('<dddB', v, 3)
  local at, mark = t - ago, reset_time(KEYS[k + 1])
  if mark and mark >= min(at, by) - 2e6 then return '\0' end
  if older == 1 and call('DEL', KEYS[k]) == 1 then at = t end
  call('SET', KEYS[k + 1], pack('<d', at), 'PX', ttl)
  return '\0'
end

-- Whether a key was reset since a time. If the clock was set meanwhile, by move, it is not known
-- whether that was before the reset or after it: then the earlier of both times counts.
local function is_reset(reset, since, move)
  return reset and since + min(move, 0) <= reset
end
