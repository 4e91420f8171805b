local byte, char, sub, find, concat = string.byte, string.char, string.sub, string.find, table.concat
local min, max = math.min, math.max

-- The permits of unanswered requests are a value of {earliest expiry, cost held} and
-- {id, expiry, cost} for each. A permit expires unless its instance renews it, so
-- that the permits of a killed instance are released.
local LAPSE = 30000000 -- microseconds

local function permits_read(key)
  local s = call('GET', key)
  if not s then return { key = key, s = '', count = 0, cost = 0, first = t + LAPSE } end
  local first, cost = unpack('<dd', s, 1)
  local h = { key = key, s = sub(s, 17), first = first, cost = cost }
  -- An expiry more than LAPSE ahead was written before the clock was set back.
  if first <= t or first > t + LAPSE then
    local kept = {}
    h.repaired = first > t + LAPSE
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

local function permits_write(h)
  if h.s == '' then
    call('DEL', h.key)
  else
    call('SET', h.key, pack('<dd', h.first, h.cost) .. h.s, 'PX', LAPSE / 1000 + 999)
  end
end

local function permits_find(h, id)
  local from = 1
  while true do
    local x = find(h.s, id, from, true)
    if not x then return nil end
    if x % 24 == 1 then return x end
    from = x + 1
  end
end

local function permits_add(h, id, cost)
  h.s = h.s .. pack('<c8dd', id, t + LAPSE, cost)
  h.cost, h.count = h.cost + cost, h.count + 1
end

local function permits_remove(h, id)
  local x = permits_find(h, id)
  if not x then return false end
  local _, _, cost = unpack('<c8dd', h.s, x)
  h.s = sub(h.s, 1, x - 1) .. sub(h.s, x + 24)
  h.cost, h.count = h.cost - cost, h.count - 1
  return true
end

-- Renew the permits of one instance. A permit that is missing was released a moment
-- ago and stays so.
local function permits_renew(v, k)
  local h = permits_read(KEYS[k])
  local count, i = unpack('<xxI4', v)
  for _ = 1, count do
    local id
    id, i = unpack('<c8', v, i)
    local x = permits_find(h, id)
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
  permits_write(h)
  return '\0'
end
