-- The general path carries out the entries that the fast path has left.
functions = functions or {}

local function read(key, logs, size, prefix)
  local s, exp, log
  -- include read.lua
  return s, exp, log
end

local function write(key, exp, reset, new, log)
  -- include write_any.lua
end

-- Added to the hold of a zone that has a rule with a block.
local BLOCKS = 4

-- What a decision function returns instead of stepped if the arguments of its rule are not
-- for this time. The caller sends others.
local OUTSIDE = 'OUTSIDE'

-- The error of a check whose report is older than those that Redis has of its instance.
local OVERTAKEN = 'OVERTAKEN'

-- Read the zone at position i of entry v and its values, from KEYS[k] on. Returns
-- the zone and the position of the next key. The rules are not read: they begin at
-- z.at.
local function zone_read(v, i, k)
  local z, logs, size, prefix, s = {}, nil, nil, nil, nil
  local marks
  z.rules, marks, z.hold, logs, z.n, size, prefix, i = unpack('<BBBBdI4I4', v, i)
  z.shadow, z.known, z.joined = marks % 2 == 1, marks % 4 > 1, marks > 3
  z.logs, z.size, z.prefix = logs, size, prefix
  local guarded = z.hold >= BLOCKS
  if guarded then z.hold = z.hold - BLOCKS end
  z.key, k = KEYS[k], k + 1
  s, z.exp, z.log = read(z.key, logs, size, prefix)
  if s == false then
    local cause = type(z.exp) == 'table' and z.exp.err or 'WRONGTYPE ' .. z.key .. ' does not hold the states of its rules'
    error({ err = cause })
  end
  z.s, z.first, z.tail = s, 9 + 8 * logs, z.log and z.log.tail
  z.view = s and (z.log and sub(s, z.first, size) or s) or ''
  if z.hold > 0 then
    z.limit, i = unpack('<d', v, i)
    z.holds, k = permits_read(KEYS[k]), k + 1
    i, z.report, z.due = permits_report(z.holds, v, i)
    if z.holds.stale then error({ err = OVERTAKEN }) end
  end
  if guarded then
    z.block, k, z.blocks, i = KEYS[k], k + 1, i + 4, i + 4 + 8 * z.rules
    z.since, i = unpack('<d', v, i)
    z.behind = i + unpack('<I4', v, z.blocks - 4)
  end
  z.at = i
  return z, k
end

-- Decide the rules of a zone for cost n while unanswered requests hold p; n, p and
-- turn are passed to the decision functions as they are. The result stays in the
-- zone for zone_commit.
local function zone_decide(z, v, n, p, turn)
  local i, j, s, log = z.at, z.first, z.s, z.log
  local new, views = {}, ''
  if log then log.tail, log.writes = z.tail, {} end
  z.ok, z.stepped, z.reset, z.delay, z.least = true, false, 0, nil, nil
  for r = 1, z.rules do
    local code = byte(v, i)
    functions[code] = functions[code] or load(code)
    local ok, state, i2, j2, reset, stepped, delay, view = functions[code](v, i + 1, s, j, t, n, p, turn, log)
    if stepped == OUTSIDE then error({ err = OUTSIDE }) end
    if n == 0 and not stepped then state = s and '' end
    if state and #state < j2 - j then state = state .. sub(s, j + #state, j2 - 1) end
    new[r] = state
    views = views .. (s and view or '')
    if not ok then z.ok = false end
    if stepped and z.stepped ~= true then z.stepped = stepped end
    if reset and reset > z.reset then z.reset = reset end
    if delay then
      z.delay = max(delay, z.delay or 0)
      z.least = min(delay, z.least or delay)
    end
    i, j = i2, j2
  end
  z.new, z.views, z.next = new, z.views or views, i
end

local function zone_commit(z)
  write(z.key, z.exp, z.reset, concat(z.new), z.log)
end

-- Write the repaired states of a zone, which a clock ahead of this one or a rule with a
-- lower limit has written, and charge nothing.
local function zone_repair(z, v)
  zone_decide(z, v, 0, 0)
  zone_commit(z)
end

-- include reset.lua

-- include block.lua

-- Like zone_read, and charge first what a report says that responses were to charge,
-- whatever the verdict. A check of a key that is blocked leaves that to the next report, unless
-- it has to write its own: its reply could not tell what the charge has used.
local function zone_open(v, i, k)
  local z, after = zone_read(v, i, k)
  if not z.due or z.due == 0 then return z, after end
  if z.block and block_read(z.block, z.since) > t and not permits_lost(z.holds) then return z, after end
  local missing = z.holds.missing
  zone_decide(z, v, z.due, nil)
  permits_write(z.holds) -- first: if one of both is refused, the charge is not made twice
  zone_commit(z)
  z, after = zone_read(v, i, k)
  z.holds.missing = missing
  return z, after
end

local function zone_admits(z)
  z.full = z.hold > 0 and z.limit > 0 and z.holds.count >= z.limit
  return z.ok and not z.full
end

-- Whether the zone's key is blocked. Then the zone denies and is not judged.
local function zone_blocked(z)
  if not z.block then return false end
  z.ends, z.span, z.by, z.blocked_ahead = block_read(z.block, z.since)
  if z.ends <= t then
    z.ends, z.span, z.by = 0, 0, z.by - z.by % STEP
    return false
  end
  z.s, z.views = nil, ''
  return true
end

-- Charge an admitted zone and acquire its permit, if it has any. Hold 1 is a
-- permit without a cost, or without a report only a look at what others hold; 2 is one that
-- holds the cost instead of charging it.
local function zone_charge(z, v, turn)
  if z.hold < 2 and z.rules > 0 then
    if z.least and z.least ~= turn then zone_decide(z, v, z.n, 0, turn) end
    zone_commit(z)
  elseif z.stepped then
    zone_repair(z, v)
  end
  if z.hold > 0 and z.report > 0 then
    permits_take(z.holds, z.report, z.hold == 2 and z.n or 0)
    permits_write(z.holds)
  end
  z.charged = true
end

-- Charge an admitted zone and a lease of up to z.want. The lease is at most half of
-- what is left, so that the rest stays for other instances.
local function zone_lease(z, v)
  local views, more = z.views, z.want
  while more > 0 do
    zone_decide(z, v, z.n + 2 * more, z.held)
    if z.ok then break end
    more = (more - more % 2) / 2
  end
  zone_decide(z, v, z.n + more, nil)
  zone_commit(z)
  z.views, z.leased, z.charged = views, more, true
end

local function zone_reply(z)
  local flags = (z.admits and 1 or 0) + (z.charged and 2 or 0) + ((z.stepped == true or z.blocked_ahead) and 4 or 0) + (z.full and 8 or 0)
    + (z.lost and 128 or 0)
  if z.hold > 0 and z.holds.missing then flags = flags + MISSING end
  local held = z.hold > 0 and pack('<dd', z.held, z.count) or ''
  local leased = z.want and pack('<d', z.leased or 0) or ''
  local block = z.block and pack('<dddB', z.ends, z.span, z.by, z.started and 1 or 0) or ''
  return char(z.s and flags + 32 or flags) .. (z.s and z.view or '') .. z.views .. held .. leased .. block
end

-- Decide all zones of an entry at one instant. Zones that are not shadows are
-- charged only if all of them admit; then each shadow that admits is charged, or two that
-- are joined if both admit. With
-- peek, nothing is charged, nor if a key is missing that the instance has a snapshot of. A
-- denial may start a block.
-- With lease, each zone is followed by the lease wanted.
local function decide(v, k, peek, lease)
  local count, i = unpack((byte(v) == CHECK or byte(v) == GUARDED) and '<xxB' or '<xxxH', v)
  local zones, all, turn, lost = {}, not peek, nil, false
  for x = 1, count do
    local z
    z, k = zone_open(v, i, k)
    if z.log then z.log.spread = not z.known end
    z.held, z.count = z.holds and z.holds.cost or 0, z.holds and z.holds.count or 0
    z.lost = z.known and not z.s
    if not zone_blocked(z) then
      zone_decide(z, v, z.n, z.held)
      z.admits, z.denied = zone_admits(z), not z.ok
    end
    i = z.behind or z.next
    if lease then z.want, i = unpack('<d', v, i) end
    zones[x] = z
    lost = lost or z.lost
    if not z.shadow then
      all = all and z.admits
      if z.delay and z.delay > (turn or -1) then turn = z.delay end
    elseif z.joined then
      local before = zones[x - 1]
      z.withheld, before.withheld = not before.admits, not z.admits
    end
  end
  all = all and not lost
  for x = 1, count do
    local z = zones[x]
    local repaired = z.stepped
    local charges = all and z.admits and not z.withheld
    if charges and lease then
      zone_lease(z, v)
    elseif charges then
      zone_charge(z, v, not z.shadow and turn or z.delay)
    else
      if repaired then zone_repair(z, v) end
      if z.blocked_ahead then block_write(z.block, z.ends, z.span, z.by) end
      if z.block and z.denied and not (z.shadow or peek or lost) then block_start(z, v, repaired) end
      if z.holds and permits_lost(z.holds) then permits_write(z.holds) end
    end
    z.stepped = repaired
    zones[x] = zone_reply(z)
  end
  return concat(zones)
end

-- Record the heartbeat of an instance in the list of instances, {id, last
-- heartbeat} each, and return whether this one was missing there, and how many are alive.
-- A list that has an earlier heartbeat of the instance than its last is one that Redis had
-- before: no instance is in the new one, so that each notices the loss.
-- The entry BORN has when the list was begun: after the last heartbeat of an instance that is
-- missing, Redis has lost all it had; before that, it may have older counts again. The list is
-- kept for so long that one of them is in each dump.
-- Run every command that a decision can need, so that missing permissions are found
-- here.
local SEEN = 5000000 -- microseconds
local KEPT = 2678400000 -- milliseconds
local OLDER, BORN = 32, '\0\0\0\0\0\0\0\0'

local function heartbeat(v, k)
  k = k + byte(v, 2) - 2 -- the last two keys; a proxy may find the server by another
  local id, told = unpack('<xxc8d', v)
  local doubted = told < 0 -- the server may have restarted since
  told = max(told, -told)
  local try = KEYS[k + 1]
  call('SET', try, '', 'PX', 1000)
  call('SETRANGE', try, 0, 'x')
  call('PEXPIRE', try, 1000)
  call('GETRANGE', try, 0, 0)
  call('DEL', try)
  local s, kept, missing, older = call('GET', KEYS[k]) or '', {}, MISSING, false
  if #s % 16 > 0 then error({ err = 'WRONGTYPE ' .. KEYS[k] .. ' does not hold instances' }) end
  local born = s == '' and t or 0
  for x = 1, #s, 16 do
    local other, seen = unpack('<c8d', s, x)
    if other == BORN then
      born = seen
    elseif other == id then
      missing, older = 0, doubted or seen < told
    elseif seen > t - SEEN and seen <= t then
      kept[#kept + 1] = sub(s, x, x + 15)
    end
  end
  if older then kept, missing = {}, MISSING end
  if missing > 0 and born <= told then missing = MISSING + OLDER end
  kept[#kept + 1] = pack('<c8d', id, t)
  call('SET', KEYS[k], pack('<c8d', BORN, born) .. concat(kept), 'PX', told > 0 and KEPT or SEEN / 1000)
  return pack('<BI4', missing, #kept)
end

-- Charge an answered request that holds no permit.
local function finish(v, k)
  local z = zone_read(v, 3, k)
  zone_decide(z, v, z.n, nil)
  zone_commit(z)
  return '\1'
end

-- Store the report of an instance and charge what responses were to charge. The value
-- is read only if that is more than nothing.
local function report(v, k)
  local h = permits_read(KEYS[k + 1])
  local _, _, due = permits_report(h, v, 31) -- behind the kind, the keys and the zone's constants
  if due > 0 then
    zone_open(v, 3, k)
  elseif not h.stale then
    permits_write(h)
  end
  return char((h.stale and 0 or 2) + (h.missing and MISSING or 0))
end

-- Apply one kind of handover to a zone whose values are in the entry from position i on:
-- raise its states to a snapshot, whose times are moved by move, or without move charge
-- debts.
local function hand_over_one(z, v, i, move)
  local at, j, reset, states = z.at, z.first, 0, {}
  if z.log then z.log.writes = {} end
  for r = 1, z.rules do
    local decide, restore = load(byte(v, at))
    local due
    states[r], i, at, j, due = restore(decide, v, at + 1, z.s, j, t, i, move, z.log)
    reset = max(reset, due)
  end
  if z.s or reset > 0 then write(z.key, z.exp, reset, concat(states), z.log) end
end

-- Take over what an instance knows of a key: first its snapshot of the states (1), if
-- they are less, then its debts (2), whatever the verdict. After the rules follows the
-- time that the instance expects, by how much that may be wrong before the snapshot's
-- times are moved, since when the instance was told the snapshots and has owed the debts,
-- the length of the snapshots, then these, then the debts. Return what was
-- refused (1, 2), because the key was reset since then.
local function hand_over(v, k)
  local what, reset = byte(v, 3), reset_time(KEYS[k + 1])
  local z = zone_read(v, 4, k)
  zone_decide(z, v, 0, 0)
  local expects, tolerance, told, owed, length, i = unpack('<ddddd', v, z.next)
  if z.stepped then
    zone_commit(z)
    z = zone_read(v, 4, k)
  end
  local move, tells, owes = t - expects, what % 2 == 1, what > 1
  if max(move, -move) <= tolerance then move = 0 end
  local keeps_told, keeps_owed = tells and not is_reset(reset, told, move), owes and not is_reset(reset, owed, move)
  if keeps_told then
    hand_over_one(z, v, i, move)
    if keeps_owed then z = zone_read(v, 4, k) end
  end
  if keeps_owed then hand_over_one(z, v, i + length) end
  return char((tells and not keeps_told and 1 or 0) + (owes and not keeps_owed and 2 or 0))
end

local function answer(v, k)
  local op = byte(v, 1)
  if op == 1 or op == CHECK or op == GUARDED then
    return decide(v, k)
  elseif op == 2 then
    return finish(v, k)
  elseif op == 3 then
    return report(v, k)
  elseif op == 7 then
    return hand_over(v, k)
  elseif op == 8 then
    return decide(v, k, true)
  elseif op == 9 then
    return decide(v, k, false, true)
  elseif op == 10 then
    return block_restore(v, k)
  elseif op == 11 then
    return reset_keys(v, k)
  elseif op == 12 then
    return reset_again(v, k)
  end
  return heartbeat(v, k)
end

-- A value of another type or size, arguments for another time, and a report that was
-- overtaken fail their own entry alone. Any other error would occur in the other entries
-- as well, and fails the call. pcall returns an error of Redis 7 as a string.
local FAILED = 16

for x = 1, #rest, 3 do
  local done, text = pcall(answer, rest[x], rest[x + 1])
  if not done then
    local cause = type(text) == 'table' and text.err or text
    if not find(cause, 'WRONGTYPE', 1, true) and cause ~= OUTSIDE and cause ~= OVERTAKEN then return { err = cause } end
    text = pack('<BI4', FAILED, #cause) .. cause
  end
  out[rest[x + 2]] = text
end
return concat(out)
