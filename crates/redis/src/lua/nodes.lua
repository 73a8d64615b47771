-- Tells that a node is alive, and how many are.
--
-- KEYS[1]   the nodes, by the time they were last heard of
-- ARGV      this node's id, microseconds until a silent node is forgotten, 1 to stay or 0 to leave
-- returns   now, the number of live nodes, and 1 if this node was not among them before

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lifetime = tonumber(ARGV[2])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - lifetime)
-- Heard of at a time that is still to come: the clock went back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + lifetime, '+inf')
local added = 0
if ARGV[3] == '1' then
  added = redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('PEXPIRE', KEYS[1], math.ceil(lifetime / 1000))
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return { now, redis.call('ZCARD', KEYS[1]), added }
