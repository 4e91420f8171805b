local byte, char, sub, find, concat = string.byte, string.char, string.sub, string.find, table.concat
local min, max = math.min, math.max

-- Places held by requests that have not been answered: {earliest lapse, cost
-- held} and then {id, lapse, cost} each. A place that its instance does not
-- renew lapses, so that a killed instance gives back what it held.
local LAPSE = 30000000

local function holds_read(hold_key)
  local s = call('GET', hold_key)
  if not s then return { key = hold_key, s = '', count = 0, cost = 0, first = t + LAPSE } end
  local first, cost = unpack('<dd', s, 1)
  local h = { key = hold_key, s = sub(s, 17), first = first, cost = cost }
  -- A lapse further ahead than any can be was written by a clock that has
  -- since been set back.
  if first <= t or first > t + LAPSE then
    local kept = {}
    h.mended = first > t + LAPSE
    h.cost, h.first = 0, t + LAPSE
    for x = 1, #h.s, 24 do
      local id, lapse, held = unpack('<c8dd', h.s, x)
      if lapse > t then
        lapse = min(lapse, t + LAPSE)
        h.cost, h.first = h.cost + held, min(h.first, lapse)
        kept[#kept + 1] = pack('<c8dd', id, lapse, held)
      end
    end
    h.s = concat(kept)
  end
  h.count = #h.s / 24
  return h
end

local function holds_write(h)
  if h.s == '' then
    call('DEL', h.key)
  else
    call('SET', h.key, pack('<dd', h.first, h.cost) .. h.s, 'PX', LAPSE / 1000 + 999)
  end
end

local function holds_find(h, id)
  local from = 1
  while true do
    local x = find(h.s, id, from, true)
    if not x then return nil end
    if x % 24 == 1 then return x end
    from = x + 1
  end
end

local function holds_add(h, id, cost)
  h.s = h.s .. pack('<c8dd', id, t + LAPSE, cost)
  h.cost, h.count = h.cost + cost, h.count + 1
end

local function holds_remove(h, id)
  local x = holds_find(h, id)
  if not x then return false end
  local _, _, cost = unpack('<c8dd', h.s, x)
  h.s = sub(h.s, 1, x - 1) .. sub(h.s, x + 24)
  h.cost, h.count = h.cost - cost, h.count - 1
  return true
end

-- Renew the places of one instance. One that is gone stays gone: it was given
-- back a moment ago.
local function holds_renew(v, k)
  local h = holds_read(KEYS[k])
  local count, i = unpack('<xxI4', v)
  for _ = 1, count do
    local id
    id, i = unpack('<c8', v, i)
    local x = holds_find(h, id)
    if x then
      local _, _, cost = unpack('<c8dd', h.s, x)
      h.s = sub(h.s, 1, x - 1) .. pack('<c8dd', id, t + LAPSE, cost) .. sub(h.s, x + 24)
    end
  end
  h.first = t + LAPSE
  for x = 1, #h.s, 24 do
    local _, lapse = unpack('<c8d', h.s, x)
    h.first = min(h.first, lapse)
  end
  holds_write(h)
  return '\0'
end
