-- Decide the entries that are the same as v. An entry is left to the path below if a state
-- has to be repaired, if the value has another type or size, or if the key is missing
-- though it is known.
repeat
  local key, exp = KEYS[place], 0
  local s = try('GET', key)
  if s then
    if #s ~= size then break end -- an error has no length
  elseif again == '+' or again == '' and marks > 1 then
    break
  end
  -- include algorithm
  if stepped then break end
  local flags
  if ok then
    flags = s and '\35' or '\3'
    -- include write.lua
  else
    flags = s and '\32' or '\0'
  end
  if args == 2 then return ARGV[1] .. pack('<d', t) .. flags .. (s or '') end
  m = m + 1
  out[m] = flags
  m = m + 1
  out[m] = s or ''
  a = a + 1
  place = place + 1
  again = ARGV[a]
until again ~= '' and again ~= '+' and again ~= '-'
