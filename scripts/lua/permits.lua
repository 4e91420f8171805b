local byte, char, sub, find, concat = string.byte, string.char, string.sub, string.find, table.concat
local min, max = math.min, math.max

-- The permits of a key are a value of {permits, cost held, earliest lapse} and one
-- entry for each instance, of ENTRY bytes:
--
--   id
--   c, held, cost      the latest report: its number, and what requests held then
--   took, reserved     permits, and their cost, that checks with this report took
--   o, took, reserved  the same for the report that was under way when c left
--   charged            the cost that responses were to charge so far
--   lapse              when the entry ends unless another report arrives
--
-- An instance reports what it holds in total, so that a report can be repeated, lost
-- and overtaken: the latest counts. An entry also stays when nothing is held:
-- otherwise a report that was overtaken would be taken for the latest.
local LAPSE, ENTRY, FIRST = 30000000, 88, 24 -- microseconds, bytes, bytes
local FORMAT = '<c8dddddddddd'

-- The requests of an instance that was not heard of until its entry lapsed may have ended with it,
-- or it may be cut off, perhaps with all others. So the cost that they held stays held for another
-- LAPSE, from the first call of the key on, in an entry whose o is SILENT; then it is charged. For a
-- call that comes late, a value with such cost is kept for a day more.
local SILENT, KEPT = -2, 86400000 -- KEPT in milliseconds

-- A flag of a reply: Redis had no entry of the instance.
local MISSING = 64

-- Remove the entries that have lapsed, but for the cost of those that fall silent. A lapse more
-- than LAPSE ahead was written before the clock was set back.
local function permits_lapse(h)
  local kept, s = {}, h.s
  h.changed = h.first > t + LAPSE
  h.count, h.cost, h.first = 0, 0, t + LAPSE
  for x = FIRST + 1, #s, ENTRY do
    local id, c, held, cost, took, reserved, o, other, others, charged, lapse = unpack(FORMAT, s, x)
    if lapse <= t and cost + reserved + others > 0 then
      if o == SILENT then
        h.unsettled = h.unsettled + cost
      else
        held, cost, took, reserved, o, other, others = 0, cost + reserved + others, 0, 0, SILENT, 0, 0
        lapse, h.changed = t + LAPSE, true
      end
    end
    if lapse > t then
      lapse = min(lapse, t + LAPSE)
      h.count, h.cost, h.first = h.count + held + took + other, h.cost + cost + reserved + others, min(h.first, lapse)
      kept[#kept + 1] = pack(FORMAT, id, c, held, cost, took, reserved, o, other, others, charged, lapse)
    end
  end
  h.s = sub(s, 1, FIRST) .. concat(kept)
end

local function permits_read(key)
  local s = call('GET', key)
  local h = { key = key, s = s or pack('<ddd', 0, 0, 0), count = 0, cost = 0, first = t + LAPSE, unsettled = 0 }
  if not s then return h end
  if #s % ENTRY ~= FIRST then error({ err = 'WRONGTYPE ' .. key .. ' does not hold permits' }) end
  h.count, h.cost, h.first = unpack('<ddd', s)
  if h.first <= t or h.first > t + LAPSE then permits_lapse(h) end
  return h
end

-- Apply the report at position i of entry v, and return the position behind it, the
-- number of the report, and the cost that is to be charged first: what responses were to
-- charge, and what silent instances held. Nothing is written before permits_write. c is 0 if
-- there is no report.
local function permits_report(h, v, i)
  local id, c, held, cost, under_way, charged, known
  id, c, held, cost, under_way, charged, known, i = unpack('<c8dddddd', v, i)
  if c == 0 then return i, c, h.unsettled end
  local s, x = h.s, FIRST + 1
  x = find(s, id, x, true)
  while x and x % ENTRY ~= FIRST + 1 do x = find(s, id, x + 1, true) end
  h.id, h.at, h.missing = id, x or #s + 1, not x
  if x then
    local _
    _, h.c, h.held, h.own, h.took, h.reserved, h.o, h.other, h.others, h.charged = unpack(FORMAT, s, x)
  else
    h.c, h.held, h.own, h.took, h.reserved, h.o, h.other, h.others, h.charged = 0, 0, 0, 0, 0, 0, 0, 0, 0
  end
  if c > h.c then
    h.count = h.count - h.held - h.took - h.other
    h.cost = h.cost - h.own - h.reserved - h.others
    if under_way == h.c then
      h.other, h.others = h.took, h.reserved
    elseif under_way ~= h.o then
      h.other, h.others = 0, 0
    end
    h.c, h.held, h.own, h.took, h.reserved, h.o = c, held, cost, 0, 0, under_way
    h.count, h.cost = h.count + held + h.other, h.cost + cost + h.others
    -- The instance has started to count anew.
    if charged < h.charged then h.charged = 0 end
  elseif c < h.c and c ~= h.o then
    h.stale = true -- the instance has given up the call, or sends it again
    return i, c, 0
  end
  local due = charged - max(h.charged, known)
  h.charged = max(h.charged, charged)
  return i, c, max(0, due) + h.unsettled
end

-- Take a permit that holds a cost, with a report that was applied.
local function permits_take(h, c, cost)
  if c == h.c then
    h.took, h.reserved = h.took + 1, h.reserved + cost
  else
    h.other, h.others = h.other + 1, h.others + cost
  end
  h.count, h.cost = h.count + 1, h.cost + cost
end

-- Whether a denied check has to write: a clock that was set back is repaired, an instance has fallen
-- silent, or what the instance still holds is put back if Redis has lost it.
local function permits_lost(h)
  return h.changed or h.missing and h.held > 0
end

local function permits_write(h)
  local s = h.s
  if h.id then
    local own = pack(FORMAT, h.id, h.c, h.held, h.own, h.took, h.reserved, h.o, h.other, h.others, h.charged, t + LAPSE)
    s = sub(s, FIRST + 1, h.at - 1) .. own .. sub(s, h.at + ENTRY)
  else
    s = sub(s, FIRST + 1)
  end
  local ttl = LAPSE / 1000 + 999 + (h.cost > 0 and KEPT or 0)
  call('SET', h.key, pack('<ddd', h.count, h.cost, min(h.first, t + LAPSE)) .. s, 'PX', ttl)
end
