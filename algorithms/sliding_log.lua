-- The decision function of sliding_log: see sliding_log.go. The state is {count,
-- size, offset, last}. The timestamps are in a ring of that size at that offset of
-- the value, and are read and written one by one, in place.
local unpack, pack, sub, rep, call = struct.unpack, struct.pack, string.sub, string.rep, redis.call
local max, min = math.max, math.min

-- Return timestamp i of the ring of size C at off. After the ring has grown, its
-- end may not have been written yet: that counts as written long ago.
local function stamp(z, s, off, C, i)
  local pos = off + i % C * 8
  if #s >= pos + 8 then return (unpack('<d', s, pos + 1)) end
  local bytes = call('GETRANGE', z.key, pos, pos + 7)
  if #bytes < 8 then return 0 end
  return (unpack('<d', bytes, 1))
end

-- Append packed timestamps, from timestamp i on, to the writes.
local function write(z, off, C, i, stamps)
  local at, room, w = i % C, (C - i % C) * 8, z.writes
  if #stamps <= room then
    w[#w + 1], w[#w + 2] = off + at * 8, stamps
  else
    w[#w + 1], w[#w + 2] = off + at * 8, sub(stamps, 1, room)
    w[#w + 1], w[#w + 2] = off, sub(stamps, room + 1)
  end
end

-- Return the last count timestamps before h, in order and packed, each less by.
local function read(z, off, C, h, count, by)
  local ring = call('GETRANGE', z.key, off, off + C * 8 - 1)
  ring = ring .. rep('\0', C * 8 - #ring)
  local out = {}
  for x = 1, count do out[x] = pack('<d', unpack('<d', ring, (h - count + x - 1) % C * 8 + 1) - by) end
  return table.concat(out)
end

-- Return how many of the timestamps from lo to h - 1 are after edge.
local function count(z, s, off, C, lo, h, edge)
  if lo >= h or stamp(z, s, off, C, h - 1) <= edge then return 0 end
  if stamp(z, s, off, C, lo) > edge then return h - lo end
  local a, b = lo, h - 1
  while b - a > 1 do
    local m = math.floor((a + b) / 2)
    if stamp(z, s, off, C, m) > edge then b = m else a = m end
  end
  return h - b
end

-- Insert the timestamps of a debt among those in the window, in order, as merge in
-- handover.go does. Return the state, when it is as if unused, and the position of
-- the next rule's arguments.
local function owe(z, v, i, s, t, L, W, C0, d, h, C, off, last, excess)
  local edge = t + excess - W
  local live = count(z, s, off, C, max(0, h - C), h, edge)
  local all, m = {}, nil
  if live > 0 then
    local kept = read(z, off, C, h, live, excess)
    for x = 1, #kept, 8 do all[#all + 1] = unpack('<d', kept, x) end
  end
  m, i = unpack('<d', v, i)
  for _ = 1, m do
    local at
    at, i = unpack('<d', v, i)
    if at > t - W then all[#all + 1] = min(at, t) end
  end
  table.sort(all)
  local n, over = #all, 0
  if n > C or excess > 0 then -- a new ring, without the timestamps that were not repaired
    C = max(C, C0)
    while C < n do C = C * 2 end
    off = z.tail
    z.tail = off + C * 8
  elseif n > live then -- zero those that have left the window since the last was written
    over = min(count(z, s, off, C, max(0, h - C), h, last - d - W) - live, C - n)
  end
  h, last = h + n - live, last - excess
  if n > live or excess > 0 then
    last = all[n]
    for x = 1, n do all[x] = pack('<d', all[x]) end
    write(z, off, C, h - n - over, rep('\0', over * 8) .. table.concat(all))
  end
  return pack('<dddd', h, C, off, last), max(0, last + W - t), i
end

return function(v, i, s, j, t, n, p, _, z)
  local L, W, C0, d
  L, W, C0, d, i = unpack('<dddd', v, i)
  local h, C, off, last = 0, 0, 0, 0
  if s then h, C, off, last = unpack('<dddd', s, j) end
  local excess = 0
  if h > 0 and last > t + d then excess = last - t end
  if p == false then
    local new, reset
    new, reset, i = owe(z, v, i, s, t, L, W, C0, d, h, C, off, last, excess)
    return true, new, i, j + 32, reset, excess > 0
  end
  -- The timestamps in the window are those after edge.
  local edge = t + excess - W
  local lo = max(0, h - C, h - L)
  local live = count(z, s, off, C, lo, h, edge)
  local leaves = 0
  local place = h - L + n - 1
  if n >= 1 and n <= L and place >= lo and place < h then
    leaves = stamp(z, s, off, C, place) + W - excess
  end
  local view = pack('<dddd', L - live, leaves, last - excess, h > 0 and 1 or 0)
  local ok = true
  if not p then
    n = min(n, L)
  else
    ok = live + n + p <= L
  end
  if not ok then n = 0 end
  local new, reset
  if ok or excess > 0 then
    if excess > 0 then
      local all = min(h, C)
      write(z, off, C, h - all, read(z, off, C, h, all, excess))
      last = last - excess
    end
    -- The ring has room for every timestamp in the window, including those above the
    -- limit: debts, and charges under another limit.
    local over = h + n - 1 - C
    if n > C or over >= 0 and n > 0 and stamp(z, s, off, C, over) > edge then
      local kept = count(z, s, off, C, max(0, h - C), h, edge)
      local size = max(C, C0)
      while size < kept + n do size = size * 2 end
      if size > L and kept + n <= L then size = L end
      if h == C and C > 0 and off + C * 8 == z.tail then
        z.tail = z.tail + (size - C) * 8 -- the last ring of the value, not yet wrapped, grows in place
        C = size
      elseif size > C then
        local to = z.tail
        z.tail = to + size * 8
        if kept > 0 then write(z, to, size, h - kept, read(z, off, C, h, kept, excess)) end
        off, C = to, size
      end
    end
    if n > 0 then
      last = max(p and t or t + d, last)
      write(z, off, C, h, rep(pack('<d', last), n))
      h = h + n
    end
    new, reset = pack('<dddd', h, C, off, last), max(0, last + W - t)
  end
  return ok, new, i, j + 32, reset, excess > 0, nil, view
end
