-- Writes the marker of a region, unless the store has the marker of another region.
--
-- KEYS[1]   the marker
-- ARGV      region and check value, separated by a space; milliseconds until it expires
-- returns   the marker that the store has now

local region = string.match(ARGV[1], '^%S+')
local marker = redis.call('MGET', KEYS[1])[1]
if marker and string.match(marker, '^%S*') ~= region then
  return marker
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
