-- The block of a key is a value of {until, span, rule}: until when the key is blocked, how
-- long that is in total, and the index of the rule that blocks. It is of all rules of a
-- zone, whatever their kinds are. If blocks of the zone grow, STEP is added to the rule for each of
-- those that followed each other, this one included, and the value is kept for a day longer.
local STEP, DAY, NEVER = 65536, 86400000000, -2 ^ 53
local function block_write(key, ends, span, rule)
  local ttl = math.ceil((ends - t) / 1000) + 999
  if rule >= STEP then ttl = ttl + DAY / 1000 end
  call('SET', key, pack('<ddd', ends, span, rule), 'PX', ttl)
end

-- Whether a block makes the next one longer.
local function block_grows(ends, rule) return rule >= STEP and t - ends <= DAY end

-- Return when the block of a key ends, or when it has ended if it makes the next one longer, NEVER
-- if there is none, its span and its rule, and whether it was written by a clock ahead of this
-- one: none lasts longer than its span. One that was started before since has ended: no rule of
-- the zone blocked then.
local function block_read(key, since)
  local s = call('GET', key)
  if not s then return NEVER, 0, 0 end
  if #s ~= 24 then error({ err = 'WRONGTYPE ' .. key .. ' does not hold a block' }) end
  local ends, span, rule = unpack('<ddd', s)
  if ends <= t and not block_grows(ends, rule) or ends - span < since then return NEVER, 0, 0 end
  return min(ends, t + span), span, rule, ends > t + span
end

-- Block the key of a zone that was denied, if a rule that blocks denies it by itself,
-- whatever unanswered requests hold, and would not deny it for ever: for the longest time
-- of these rules, which is what the rule says or, if that is longer, until it admits.
local function block_start(z, v, repaired)
  local s, log, i, j, n = z.s, z.log, z.at, z.first, z.n
  if not s then return end
  if repaired then
    local _
    s, _, log = read(z.key, z.logs, z.size, z.prefix)
  end
  if log then log.spread = nil end
  local grows, step, most = z.next, 0, 0
  if grows < z.behind then
    most, grows = unpack('<B', v, grows)
    step = min(z.by / STEP + 1, most)
  end
  for r = 1, z.rules do
    local decide, from, at = functions[byte(v, i)], i + 1, j
    local least = unpack('<d', v, z.blocks + 8 * r - 8)
    if step > 0 then
      local more = byte(v, grows)
      if step > 1 and more > 0 then least = unpack('<d', v, grows + 8 * min(step - 1, more) - 7) end
      grows = grows + 1 + 8 * more
    end
    local fits, _, i2, j2, _, _, delays = decide(v, from, nil, at, t, n, 0, nil, { key = z.key, tail = 0, writes = {} })
    -- A cost that is held is judged like one that is charged, but that nothing is charged,
    -- and that it does not wait in a queue.
    local function admits(d)
      local ok, _, _, _, _, stepped = decide(v, from, s, at, t + d, 0, n, nil, log)
      if stepped == OUTSIDE then return true end -- after the next period
      return ok and (not delays or (decide(v, from, s, at, t + d, n, 0, nil, log)))
    end
    if least > 0 and fits and not admits(0) then
      local denied, span = 0, least
      while span < 2 ^ 52 and not admits(span) do denied, span = span, span * 2 end
      while denied >= least and span - denied > 1 do
        local middle = denied + math.floor((span - denied) / 2)
        if admits(middle) then span = middle else denied = middle end
      end
      if span > z.span then z.ends, z.span, z.by, z.started = t + span, span, r - 1 + step * STEP, true end
    end
    i, j = i2, j2
  end
  if z.started then block_write(z.block, z.ends, z.span, z.by) end
end

-- Put back the block of a key that an instance knows, if it ends later. Behind the entry's
-- first bytes are its end, span and rule, the time that the instance expects, and by how
-- much that may be wrong before the end is moved. A key that was reset takes none that was started
-- before.
local function block_restore(v, k)
  local ends, span, rule, expects, tolerance = unpack('<ddddd', v, 3)
  local had, had_span, had_rule, stepped = block_read(KEYS[k], 0)
  local move, since, reset = t - expects, ends - span, reset_time(KEYS[k + 1])
  if max(move, -move) <= tolerance then move = 0 end
  ends = min(ends + move, t + span)
  if is_reset(reset, since, move) then return ends > had + tolerance and '\1' or '\0' end
  if ends > had and (ends > t or block_grows(ends, rule)) then
    block_write(KEYS[k], ends, span, rule)
  elseif stepped then
    block_write(KEYS[k], had, had_span, had_rule)
  end
  return '\0'
end
