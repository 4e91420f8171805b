-- This script runs one call: it carries out the entries in ARGV and returns their
-- replies. scripts/README.md describes the formats.
--
-- Redis runs the whole script with every call and keeps nothing between calls.
-- Much of its time goes into creating tables and strings: Lua 5.1 hashes every byte of
-- every string that it creates. Functions cost less, but every call creates them anew:
-- the fast path contains the text of the built-in algorithms, except sliding_log, and
-- creates none for them. The functions of the general path are created only if an entry
-- is left to it.
local unpack, pack, call, try = struct.unpack, struct.pack, redis.call, redis.pcall
local KEYS, ARGV = KEYS, ARGV

-- t is the time in microseconds. A call reads the clock once.
local time = call('TIME')
local t = time[1] * 1000000 + time[2]

-- The caller has stopped waiting for the reply: change nothing.
if t > unpack('<d', ARGV[1], 9) then return ARGV[1] .. pack('<d', -t) end

-- load creates the decision function of an algorithm. The fast path calls it only
-- for algorithms that it does not contain.
local function load(code)
  -- include functions
  -- The functions of third-party algorithms are added here.
  error('no algorithm ' .. code)
end

-- The fast path decides checks of one zone without permits, and those of a zone with one
-- rule in a loop of the rule's algorithm. It leaves an entry to
-- the general path if it is of another kind, if a state has to be repaired, if
-- one of several rules delays, or if the value has another type or size. A zone that
-- has a rule with a block is guarded: the general path decides it if the key has a
-- block, or if the check is denied and may start one.
local CHECK, GUARDED = 6, 5
local FREE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' -- there is no block

-- args is the length of ARGV; a and place are positions in ARGV and KEYS. out collects
-- the reply in m parts. rest lists the entries that are left to the general path:
-- {entry, position in KEYS, position in out, ...}. functions holds the decision
-- functions that load has created, by their codes.
local args, a, place, m, out, rest, functions = #ARGV, 2, 1, 1, nil, nil, nil
if args > 2 then out = { ARGV[1] .. pack('<d', t) } end -- the reply to a single check needs no table
while a <= args do
  local v, again = ARGV[a], '' -- the entries of up to one byte behind it repeat it
  local op, keys, rules, marks, logs, n, size, prefix, first, i = unpack(#v > 23 and '<BBxBBxBdI4I4B' or '<BB', v)
  if op == 1 or op == 8 or op == 9 then keys = unpack('<xH', v) end -- it decides several zones
  if op == GUARDED then first, i = unpack('<B', v, 36 + 8 * rules) end -- behind the blocks
  -- The arguments of the rule and the position behind them. Those of a single rule
  -- are unpacked once for all entries that are the same.
  local a1, a2, a3, a4, a5, a6, a7, a8, a9, behind
  -- The code of the rule, if the loop of its algorithm may decide the entries.
  local one = op == CHECK and rules == 1 and logs == 0 and first
  repeat
    if one then
      -- include loops
      if again ~= '' and again ~= '+' and again ~= '-' then break end
    end
    local flags, seen, views = nil, '', nil
    if op == CHECK or op == GUARDED and not try('GET', KEYS[place + 1]) then
      local key, s, exp, log = KEYS[place], nil, nil, nil
      -- include read.lua
      local known = again == '+' or again == '' and marks > 1
      if log then log.spread = not known end
      if s == nil and known then
        flags = '\128' -- lost: the instance has a snapshot of the key
        if op == GUARDED then views = FREE end
        if args == 2 then return ARGV[1] .. pack('<d', t) .. flags .. (views or '') end
      elseif s ~= false then
        -- Decide the rules. The variables rule_* are the results of one rule, as a
        -- decision function returns them; behind the loop, those of all rules.
        local rule_ok, rule_state, rule_i, rule_j, rule_reset, rule_stepped, rule_delay, rule_view
        local code, r, denied, reset, states, count, all_views = first, nil, nil, nil, nil, nil, nil
        rule_i, rule_j = i, 9 + 8 * logs
        while true do
          local from = rule_j
          -- include algorithms
          if rules == 1 then break end
          a1 = nil
          if rule_stepped or rule_delay then
            rule_stepped = true
            break
          end
          if not rule_ok then
            denied = true
          elseif not reset or rule_reset > reset then
            reset = rule_reset
          end
          if rule_view then all_views = (all_views or '') .. rule_view end
          if not denied then
            states, count = states or {}, (count or 0) + 1
            states[count] = rule_state
            if #rule_state < rule_j - from then -- the rest of the state is as before
              count = count + 1
              states[count] = string.sub(s, from + #rule_state, rule_j - 1)
            end
          end
          r, rule_view = (r or 1) + 1, nil
          if r > rules then
            rule_ok, rule_reset, rule_view = not denied, reset, all_views
            rule_state = rule_ok and table.concat(states)
            break
          end
          code, rule_i = string.byte(v, rule_i), rule_i + 1
        end
        if not rule_stepped then
          if s then
            if log then
              seen, views = string.sub(s, 17, size), rule_view
            else
              seen = s
            end
          end
          if rule_ok then
            local new, reset = rule_state, rule_reset
            -- include write_any.lua
          end
          flags = rule_ok and (s and '\35' or '\3') or s and '\32' or '\0'
          if op == GUARDED then
            if not rule_ok then flags = nil end
            views = (views or '') .. FREE
          end
          if flags and args == 2 then return ARGV[1] .. pack('<d', t) .. flags .. seen .. (views or '') end
        end
      end
    end
    out = out or { ARGV[1] .. pack('<d', t) }
    if flags then
      m = m + 1
      out[m] = flags -- one after the other, so that the table grows as an array
      m = m + 1
      out[m] = seen
      if views then
        m = m + 1
        out[m] = views
      end
    else
      m = m + 1
      out[m], rest = '', rest or {}
      local entry = v
      if again ~= '' then entry = string.sub(v, 1, 4) .. string.char(marks % 2 + (again == '+' and 2 or 0)) .. string.sub(v, 6) end
      rest[#rest + 1], rest[#rest + 2], rest[#rest + 3] = entry, place, m
    end
    a, place = a + 1, place + keys
    again = ARGV[a]
  until again ~= '' and again ~= '+' and again ~= '-'
end
if not rest then return table.concat(out) end

-- include permits.lua

-- include general.lua
