-- The decision function of sliding_log, and the function for its handover: see
-- sliding_log.go. The state is {count, size, offset, last}. The timestamps are in a ring
-- of that size at that offset of the value, and are read and written in place.
local unpack, pack, sub, rep, call = struct.unpack, struct.pack, string.sub, string.rep, redis.call
local max, min, floor, ceil, concat = math.max, math.min, math.floor, math.ceil, table.concat

-- AT_ONCE bounds the timestamps of a repair, PUT_BACK those of a log that is put back, RING the
-- size up to which rings double and are copied, NEWEST those among which a debt is inserted, RUNS
-- is the number of runs of a snapshot, or half of it if parts of the limit are leased, and
-- of the newest timestamps that are reported.
local AT_ONCE, PUT_BACK, RING, NEWEST, RUNS, JUMP = 4096, 8192, 8192, 1024, 8, 2 ^ 21

-- Return timestamp i of the ring of size C at off. After the ring has grown, its end may
-- not have been written yet: that counts as written long ago.
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

-- Return how many of the timestamps from lo to h - 1 are after edge.
local function count(z, s, off, C, lo, h, edge)
  if lo >= h or stamp(z, s, off, C, h - 1) <= edge then return 0 end
  if stamp(z, s, off, C, lo) > edge then return h - lo end
  local a, b = lo, h - 1
  while b - a > 1 do
    local m = floor((a + b) / 2)
    if stamp(z, s, off, C, m) > edge then b = m else a = m end
  end
  return h - b
end

-- The functions that few calls need are created when they are.
local function rare()
  -- Return the last n timestamps before h, in order and packed.
  local function read(z, off, C, h, n)
    if n == 0 then return '' end
    local at = (h - n) % C
    local first = min(n, C - at)
    local ring = call('GETRANGE', z.key, off + at * 8, off + (at + first) * 8 - 1)
    ring = ring .. rep('\0', first * 8 - #ring)
    if n > first then
      local behind = call('GETRANGE', z.key, off, off + (n - first) * 8 - 1)
      ring = ring .. behind .. rep('\0', (n - first) * 8 - #behind)
    end
    return ring
  end

  -- Return the size of a ring for n timestamps, which has C now and C0 at first. Rings
  -- double, or get the length of the limit L if that is enough. A ring that would be above
  -- RING gets the length of the limit, and loses its oldest timestamps.
  local function ring_size(n, C, L, C0)
    local size = max(C, C0)
    while size < n and size < RING do size = size * 2 end
    if size < n or size > L and n <= L then size = max(L, C) end
    return size
  end

  -- Make room for n timestamps, of which the last kept are those before h. Return the new
  -- h, size and offset.
  local function grow(z, off, C, h, L, C0, kept, n)
    local size = ring_size(n, C, L, C0)
    if size == C then return h, C, off end
    if h == C and C > 0 and off + C * 8 == z.tail then
      z.tail = z.tail + (size - C) * 8 -- the last ring of the value, not yet wrapped, grows in place
      return h, size, off
    end
    local to = z.tail
    z.tail = to + size * 8
    if kept > 0 then write(z, to, size, h - kept, read(z, off, C, h, kept)) end
    return h, size, to
  end

  -- Move the timestamps back by excess after a step of the clock, into a new ring that has
  -- room for n more. Return as grow does.
  local function repair(z, off, C, h, L, C0, n, excess)
    local all = min(h, C, AT_ONCE)
    local ring, out = read(z, off, C, h, all), {}
    for x = 1, all do out[x] = pack('<d', unpack('<d', ring, x * 8 - 7) - excess) end
    local size = ring_size(all + n, all, L, C0)
    local to = z.tail
    z.tail = to + size * 8
    write(z, to, size, 0, concat(out))
    return all, size, to
  end

  -- Return a count at the beginning of a ring of size C, further ahead of h than a limit can
  -- be. Such a jump says that the timestamps before are not those that instances know.
  local function jump(h, C) return (ceil((h + JUMP) / C) + 1) * C end

  -- Raise the last timestamps of the log to the runs of a snapshot at position i of v, moved
  -- by move: see sliding_log_handover.go. Return the log, and the position behind the runs.
  local function raise(z, s, t, v, i, move, L, W, C0, d, h, C, off, last)
    local out, from, reach, have, newest, raised, kept = {}, 0, 0, min(h, C), last, false, nil
    local runs = d > 0 and 2 * RUNS or RUNS
    local behind = i + runs * 16
    for k = runs, 1, -1 do
      local n, q = unpack('<dd', v, i)
      i = i + 16
      if reach == 0 then move = move - max(0, q + move - t - d) end -- a step of the clock back
      q = q + move
      if n == 0 or q <= t - W then break end
      -- x becomes the first position from the newest, from which the log is older than q.
      local x, to = from, from + n
      local y = to
      while x < y do
        local m = floor((x + y) / 2)
        if m < have and stamp(z, s, off, C, h - 1 - m) >= q then x = m + 1 else y = m end
      end
      if x > from then kept = kept or read(z, off, C, h, min(have, PUT_BACK)) end
      out[k] = rep(pack('<d', q), to - x) .. (x > from and sub(kept, #kept - x * 8 + 1, #kept - from * 8) or '')
      if x == 0 then newest = q end
      from, reach, raised = to, to, raised or x < to
    end
    if raised then
      if reach > have then
        C, off = ring_size(reach, 0, L, C0), z.tail
        h, z.tail = jump(max(h, floor(t / 1000000) * JUMP), C) + reach, off + C * 8
      else -- zero those that have left the window since the last was written
        local first = max(reach, count(z, s, off, C, h - have, h, t - W))
        local over = min(PUT_BACK, count(z, s, off, C, h - have, h, last - d - W) - first)
        if over > 0 then write(z, off, C, h - first - over, rep('\0', over * 8)) end
      end
      local used = 0
      for k = 1, runs do used = used + (out[k] and 1 or 0) end
      write(z, off, C, h - reach, concat(out, '', runs - used + 1, runs))
    end
    return h, C, off, newest, behind
  end

  -- Insert the timestamps of a debt {count, size of a group, timestamps...} at position i of
  -- v among those in the window, in order, as insert in sliding_log_handover.go does. Return
  -- the log, and the position behind the debt.
  local function insert(z, s, t, v, i, L, W, C0, d, h, C, off, last)
    local live = h > 0 and count(z, s, off, C, max(0, h - C), h, t - W) or 0
    local some = min(live, NEWEST)
    local ring, out, total, least, done, n, size = read(z, off, C, h, some), {}, 0, 0, 1, nil, nil
    if live > some then least = unpack('<d', ring) end
    n, size, i = unpack('<dd', v, i)
    while n > 0 do
      local at
      at, i = unpack('<d', v, i)
      if at > t - W then
        at = min(max(at, least), t)
        local a, b = (done - 1) / 8, #ring / 8 -- to the first timestamp after at
        while a < b do
          local m = floor((a + b) / 2)
          if unpack('<d', ring, m * 8 + 1) <= at then a = m + 1 else b = m end
        end
        local pos = a * 8 + 1
        out[#out + 1] = sub(ring, done, pos - 1)
        out[#out + 1] = rep(pack('<d', at), min(size, n))
        done, total = pos, total + min(size, n)
      end
      n = n - size
    end
    if total == 0 then return h, C, off, last, i end
    out[#out + 1] = sub(ring, done)
    ring = concat(out)
    -- Zero those that have left the window since the last was written.
    local over, old = h > 0 and count(z, s, off, C, max(0, h - C), h, last - d - W) - live or 0, off
    if live + total > C then h, C, off = grow(z, off, C, h, L, C0, live, live + total) end
    if off == old and over > 0 and live == some then
      over = min(over, AT_ONCE, C - live - total)
      ring = rep('\0', over * 8) .. ring
      some = some + over
    end
    write(z, off, C, h - some, ring)
    return jump(h, C) + (h + total) % C, C, off, unpack('<d', ring, #ring - 7), i
  end

  -- Return the quantiles of the last live timestamps: in groups of equal size, the newest
  -- first, the oldest of each.
  local function quantiles(z, s, off, C, h, live)
    local out, size = {}, ceil(live / RUNS)
    for k = 1, RUNS do
      local first = (k - 1) * size
      out[k] = pack('<d', first < live and stamp(z, s, off, C, h - min(first + size, live)) or 0)
    end
    return concat(out)
  end

  return grow, repair, raise, insert, quantiles
end

return function(v, i, s, j, t, n, p, _, z)
  local L, W, C0, d
  L, W, C0, d, i = unpack('<dddd', v, i)
  local h, C, off, last = 0, 0, 0, 0
  if s then h, C, off, last = unpack('<dddd', s, j) end
  local lo, excess = max(0, h - C, h - L), 0
  if h > 0 and last > t + d then
    lo, excess = max(lo, h - AT_ONCE), last - t
  end
  -- The timestamps in the window are those after edge.
  local edge = t + excess - W
  local live = count(z, s, off, C, lo, h, edge)
  local view
  if s then
    local leaves, place = 0, h - L + n - 1
    if n >= 1 and n <= L and place >= lo and place < h then
      leaves = stamp(z, s, off, C, place) + W - excess
    end
    local frees = 0
    if live > 0 then
      frees = place == h - live and leaves or stamp(z, s, off, C, h - live) + W - excess
    end
    -- A log that may be put back reports its newest timestamps as well, or, to an instance
    -- that has no snapshot of it, quantiles and the count negated.
    local newest, total = '', h
    if L <= PUT_BACK and z.spread and live > RUNS and excess == 0 then
      local _, _, _, _, quantiles = rare()
      newest, total = quantiles(z, s, off, C, h, live), -h
    elseif L <= PUT_BACK then
      local m = excess > 0 and 0 or min(live, RUNS)
      local at = off + (h - m) % max(C, 1) * 8
      if m > 0 and at + m * 8 <= off + C * 8 then
        newest = #s >= at + m * 8 and sub(s, at + 1, at + m * 8) or call('GETRANGE', z.key, at, at + m * 8 - 1)
      end
      if #newest < RUNS * 8 then newest = rep('\0', RUNS * 8 - #newest) .. newest end
    end
    view = pack('<ddddd', L - live, leaves, last - excess, total, frees) .. newest
  end
  local ok = true
  if not p then
    n = n > 0 and max(0, min(n, L, 2 * L - count(z, s, off, C, max(0, h - C), h, edge))) or 0
  else
    ok = live + n + p <= L
  end
  if not ok then n = 0 end
  local new, reset
  if ok or excess > 0 then
    -- The ring has room for every timestamp in the window, including those above the
    -- limit: debts, and charges under another limit.
    local over = h + n - 1 - C
    if excess > 0 then
      local _, repair = rare()
      last = last - excess
      h, C, off = repair(z, off, C, h, L, C0, n, excess)
    elseif n > C or over >= 0 and n > 0 and stamp(z, s, off, C, over) > edge then
      local kept = count(z, s, off, C, max(0, h - C), h, edge)
      h, C, off = rare()(z, off, C, h, L, C0, kept, kept + n)
    end
    if n > 0 then
      last = max(p and t or t + d, last)
      write(z, off, C, h, rep(pack('<d', last), n))
      h = h + n
    end
    new, reset = pack('<dddd', h, C, off, last), max(0, last + W - t)
  end
  return ok, new, i, j + 32, reset, excess > 0, nil, view
end, function(_, v, a, s, j, t, i, move, z)
  local L, W, C0, d
  L, W, C0, d, a = unpack('<dddd', v, a)
  local h, C, off, last = 0, 0, 0, 0
  if s then h, C, off, last = unpack('<dddd', s, j) end
  local _, _, raise, insert = rare()
  if move then
    h, C, off, last, i = raise(z, s, t, v, i + 40, move, L, W, C0, d, h, C, off, last)
  else
    h, C, off, last, i = insert(z, s, t, v, i, L, W, C0, d, h, C, off, last)
  end
  return pack('<dddd', h, C, off, last), i, a, j + 32, h > 0 and max(0, last + W - t) or 0
end
