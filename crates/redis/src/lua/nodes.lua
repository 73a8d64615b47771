-- Records this node's heartbeat and counts the live nodes.
--
-- KEYS[1]   sorted set of node ids, scored by the time of their last heartbeat
-- ARGV      this node's id, microseconds until a silent node is removed, 1 to stay or 0 to leave
-- returns   now, the number of live nodes, and 1 if this node was not among them before

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lifetime = tonumber(ARGV[2])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - lifetime)
-- Remove heartbeats that lie in the future: the clock went back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + lifetime, '+inf')
local added = 0
if ARGV[3] == '1' then
  added = redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('PEXPIRE', KEYS[1], math.ceil(lifetime / 1000))
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return { now, redis.call('ZCARD', KEYS[1]), added }
