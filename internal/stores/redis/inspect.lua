-- The version of Redis, and which of the commands in ARGV its user may not run: asked
-- without running any, so that none of it is refused and noted as such.
-- KEYS[1] is a key as Diana's are, ARGV[1] the channel that resets are published on, with
-- a right that no decision needs. Redis before 7.0 knows none of this.
local missing = {}
local may = redis.acl_check_cmd
for i = 2, #ARGV do
  if may and not may(ARGV[i], KEYS[1], KEYS[1]) then missing[#missing + 1] = ARGV[i] end
end
if may and not may('publish', ARGV[1], '') then missing[#missing + 1] = 'publish' end
local info = may and may('info', 'server') and '1' or may and '0' or ''
return {redis.REDIS_VERSION or '', info, table.concat(missing, ' +')}
