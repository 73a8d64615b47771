-- One token bucket, as most libraries write it. Arguments: rate per second, burst, cost.
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state = redis.call('HMGET', KEYS[1], 't', 'n')
local tokens, at = tonumber(state[2]) or burst, tonumber(state[1]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate / 1000000)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HSET', KEYS[1], 't', string.format('%.0f', now), 'n', string.format('%.6f', tokens))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000))
return { allowed and 1 or 0, math.floor(tokens), allowed and 0 or math.ceil((cost - tokens) / rate * 1000000) }
