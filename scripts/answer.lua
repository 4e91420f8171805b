-- Answer ask v, or leave it to dispatch.lua, and go on to the next.
out = out or { ARGV[1] .. pack('<d', t) }
if flags then
  out[m + 1], out[m + 2] = flags, seen
  m = m + 2
  if views then
    m = m + 1
    out[m] = views
  end
else
  m = m + 1
  out[m], rest = '', rest or {}
  rest[#rest + 1], rest[#rest + 2], rest[#rest + 3] = v, k, m
end
a, k = a + 1, k + keys
