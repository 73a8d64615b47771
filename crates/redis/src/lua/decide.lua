-- Decides a batch of requests at one instant of this server's clock, each all rules or none.
--
-- KEYS      the counters of the batch, each once
-- ARGV[1]   policies, a MessagePack array of arrays of numbers (see `policy` below)
-- ARGV[2]   requests, a flat MessagePack array of numbers:
--             op, charged_at, number of charges, and for each charge
--             policy, key, cost, role, grace policy, grace key, ban policy, ban key (0: none)
-- returns   now, '1' or '0' for each request (was it admitted), digests of the logs that were looked
--           at, and what each key held before
--
-- It decides and writes, no more: waits and what is left are worked out by the caller, who runs the
-- same history from what the keys held. The words and the arithmetic are those of tidegate-core;
-- all numbers are integers below 2^53, where doubles are exact.

local call = redis.call
local pack, unpack_all = cmsgpack.pack, cmsgpack.unpack
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local policies, requests = unpack_all(ARGV[1]), unpack_all(ARGV[2])
local held = call('MGET', unpack(KEYS))
local states, changed, digests, answers = {}, {}, {}, {}

local BUCKET, FIXED, COUNTER, LOG = 1, 2, 3, 4
local CHARGE, PEEK, FORCE, REFUND, RESET = 0, 1, 2, 3, 4
local ENFORCE, SHADOW, ALWAYS = 0, 1, 2
local ALLOW, DENY, SHADOW_DENY, WARN, BAN = 0, 1, 2, 3, 4

-- The state of a key as a list of numbers, or false where nothing is kept.
local function state_of(key)
  local state = states[key]
  if state == nil then
    local bytes = held[key]
    state = bytes and { unpack_all(bytes) }
    states[key] = state
  end
  return state
end

-- Keeps a state, to be written at the end; from `till` on it equals none.
local function keep(key, state, till)
  states[key] = state
  changed[key] = till
end

-- Buckets -----------------------------------------------------------------------------------------
-- policy: 1, units a microsecond, units a request, capacity, ceiling, in force since
-- state:  used, at, units a microsecond, units a request

local function drained(used, at, per_micro, till)
  if till <= at then return used end
  return max(0, used - (till - at) * per_micro)
end

-- The units in use at `now`, on the policy's own scale.
local function bucket_used(policy, state)
  if not state then return 0 end
  local used, at, per_micro, per_request = state[1], state[2], state[3], state[4]
  local since = policy[6]
  if per_micro == policy[2] and per_request == policy[3] then
    if at < since then
      local till = min(since, now)
      used, at = drained(used, at, per_micro, till), till
    end
    return drained(min(used, policy[5]), at, per_micro, now)
  end
  if drained(used, at, per_micro, now) == 0 then return 0 end
  local from = min(max(at, since), now)
  local counted = ceil(drained(used, at, per_micro, from) / per_request)
  return drained(min(counted * policy[3], policy[5]), from, policy[2], now)
end

local function bucket_keep(policy, key, used)
  keep(key, { used, now, policy[2], policy[3] }, now + ceil(used / policy[2]))
end

local bucket = {
  never = function(policy, cost) return cost * policy[3] > policy[4] end,
  fits = function(policy, key, cost)
    return bucket_used(policy, state_of(key)) + cost * policy[3] <= policy[4]
  end,
  charge = function(policy, key, cost)
    local used = bucket_used(policy, state_of(key))
    bucket_keep(policy, key, min(used + cost * policy[3], policy[5]))
  end,
  refund = function(policy, key, cost, charged_at)
    local state = state_of(key)
    if not state or charged_at < policy[6] then return end
    local back = max(0, cost * policy[3] - max(0, now - charged_at) * policy[2])
    bucket_keep(policy, key, max(0, bucket_used(policy, state) - back))
  end,
  rebase = function(policy, key)
    local state = state_of(key)
    if not state then return end
    if state[2] > now or state[3] ~= policy[2] or state[4] ~= policy[3] then
      bucket_keep(policy, key, bucket_used(policy, state))
    end
  end,
}

-- Fixed windows -----------------------------------------------------------------------------------
-- policy: 2, requests, window
-- state:  window number, count

local function fixed_count(policy, state)
  if state and state[1] >= floor(now / policy[3]) then return state[2] end
  return 0
end

local function fixed_keep(policy, key, count)
  local window = floor(now / policy[3])
  keep(key, { window, count }, count > 0 and (window + 1) * policy[3] or 0)
end

local fixed = {
  never = function(policy, cost) return cost > policy[2] end,
  fits = function(policy, key, cost)
    return fixed_count(policy, state_of(key)) + cost <= policy[2]
  end,
  charge = function(policy, key, cost)
    local count = fixed_count(policy, state_of(key))
    fixed_keep(policy, key, min(count + cost, max(2 * policy[2], count)))
  end,
  refund = function(policy, key, cost, charged_at)
    local state = state_of(key)
    if not state or floor(charged_at / policy[3]) ~= floor(now / policy[3]) then return end
    fixed_keep(policy, key, max(0, fixed_count(policy, state) - cost))
  end,
  rebase = function(policy, key)
    local state = state_of(key)
    if state and state[1] > floor(now / policy[3]) then fixed_keep(policy, key, state[2]) end
  end,
}

-- Sliding window counters -------------------------------------------------------------------------
-- policy: 3, requests, window, microseconds a tick, ticks a window, largest count
-- state:  window number, current, previous

local function counter_fold(policy, state)
  return min(state[2] + state[3], max(2 * policy[2], state[2]))
end

local function counter_pair(policy, state)
  local window, current, previous = floor(now / policy[3]), 0, 0
  if not state then return 0, 0 end
  if state[1] > window then
    current = counter_fold(policy, state)
  elseif state[1] == window then
    current, previous = state[2], state[3]
  elseif state[1] + 1 == window then
    previous = state[2]
  end
  return min(current, policy[6]), min(previous, policy[6])
end

local function counter_keep(policy, key, current, previous)
  local window, till = floor(now / policy[3]), 0
  if current > 0 then
    till = (window + 2) * policy[3]
  elseif previous > 0 then
    till = (window + 1) * policy[3]
  end
  keep(key, { window, current, previous }, till)
end

local counter = {
  never = function(policy, cost) return cost > policy[2] end,
  fits = function(policy, key, cost)
    local current, previous = counter_pair(policy, state_of(key))
    local left = policy[5] - floor(now % policy[3] / policy[4])
    return current + ceil(previous * left / policy[5]) + cost <= policy[2]
  end,
  charge = function(policy, key, cost)
    local current, previous = counter_pair(policy, state_of(key))
    counter_keep(policy, key, min(current + cost, max(2 * policy[2], current)), previous)
  end,
  refund = function(policy, key, cost, charged_at)
    local state = state_of(key)
    if not state then return end
    local current, previous = counter_pair(policy, state)
    local ago = floor(now / policy[3]) - floor(charged_at / policy[3])
    if ago == 0 then
      current = max(0, current - cost)
    elseif ago == 1 then
      previous = max(0, previous - cost)
    end
    counter_keep(policy, key, current, previous)
  end,
  rebase = function(policy, key)
    local state = state_of(key)
    if state and state[1] > floor(now / policy[3]) then
      counter_keep(policy, key, counter_fold(policy, state), 0)
    end
  end,
}

-- Sliding window logs -----------------------------------------------------------------------------
-- policy: 4, requests, window
--
-- A hash: numbered chunks of records (at, cost), oldest first, and a directory `d` that tells the
-- total and count of all records, and for each chunk the time of its last record, its total, its
-- count and its number. A call looks at the directory and at two or three chunks, so its work grows
-- with the square root of the log.

local HEAD, HEAD_BYTES = '>I3I3', 6
local ENTRY, ENTRY_BYTES = '>I7I3I1I4', 15
local RECORD, RECORD_BYTES = '>I7I3', 10
local CHUNK = 64
local read, write = struct.unpack, struct.pack

local logs = {}

local function new_log(policy, key, cleared)
  local log = { key = key, window = policy[3], cleared = cleared }
  log.chunks, log.written, log.dropped = {}, {}, {}
  log.total, log.count, log.directory = 0, 0, ''
  logs[key] = log
  return log
end

local function log_of(policy, key)
  local log = logs[key]
  if log then return log end
  log = new_log(policy, key, false)
  local bytes = call('HGET', KEYS[key], 'd')
  if bytes then
    log.total, log.count = read(HEAD, bytes)
    log.directory = bytes:sub(HEAD_BYTES + 1)
  end
  return log
end

-- How many chunks there are, and what the directory says of the i-th.
local function log_chunks(log) return #log.directory / ENTRY_BYTES end
local function log_entry(log, i) return read(ENTRY, log.directory, (i - 1) * ENTRY_BYTES + 1) end
local function log_record(chunk, r) return read(RECORD, chunk, (r - 1) * RECORD_BYTES + 1) end

local function log_chunk(log, i)
  local _, _, _, number = log_entry(log, i)
  local chunk = log.chunks[number]
  if not chunk then
    chunk = call('HGET', KEYS[log.key], number)
    log.chunks[number] = chunk
  end
  return chunk
end

-- Puts what is told of a chunk, or nothing, into the i-th place of the directory.
local function log_tell(log, i, entry)
  local directory = log.directory
  log.directory = directory:sub(1, (i - 1) * ENTRY_BYTES) .. entry
    .. directory:sub(i * ENTRY_BYTES + 1)
  changed[log.key] = true
end

local function log_put(log, i, number, chunk, total)
  local count = #chunk / RECORD_BYTES
  log.chunks[number], log.written[number] = chunk, true
  log_tell(log, i, write(ENTRY, log_record(chunk, count), total, count, number))
end

local function log_drop(log, i)
  local _, _, _, number = log_entry(log, i)
  log.dropped[#log.dropped + 1] = number
  log.chunks[number], log.written[number] = nil, nil
  log_tell(log, i, '')
end

-- The cost of some records of a chunk.
local function log_cost(chunk, from, till)
  local cost = 0
  for r = from, till do
    local _, spent = log_record(chunk, r)
    cost = cost + spent
  end
  return cost
end

-- Takes the records `from` to `till` out of the i-th chunk; their cost is given.
local function log_cut(log, i, from, till)
  local _, total, count, number = log_entry(log, i)
  local chunk = log_chunk(log, i)
  local cut = log_cost(chunk, from, till)
  log.total, log.count = log.total - cut, log.count - (till - from + 1)
  if till - from + 1 == count then
    log_drop(log, i)
  else
    local kept = chunk:sub(1, (from - 1) * RECORD_BYTES) .. chunk:sub(till * RECORD_BYTES + 1)
    log_put(log, i, number, kept, total - cut)
  end
  return cut
end

local function log_append(log, at, cost)
  local i, next_number = log_chunks(log), 1
  log.total, log.count = log.total + cost, log.count + 1
  if i > 0 then
    local _, total, count, number = log_entry(log, i)
    if count < CHUNK then
      return log_put(log, i, number, log_chunk(log, i) .. write(RECORD, at, cost), total + cost)
    end
    next_number = number + 1
  end
  log_put(log, i + 1, next_number, write(RECORD, at, cost), cost)
end

local function log_newest(log)
  local chunks = log_chunks(log)
  return chunks > 0 and log_entry(log, chunks) or 0
end

-- What has expired: whole chunks, then records of the next; the cost of all, and of the latter.
local function log_expired(log, window)
  local chunks, records, cost, in_next = 0, 0, 0, 0
  local all = log_chunks(log)
  while chunks < all do
    local last, total = log_entry(log, chunks + 1)
    if now - last < window then
      local chunk = log_chunk(log, chunks + 1)
      while true do
        local at, spent = log_record(chunk, records + 1)
        if now - at < window then break end
        records, in_next = records + 1, in_next + spent
      end
      break
    end
    chunks, cost = chunks + 1, cost + total
  end
  return chunks, records, cost + in_next, in_next
end

-- Whether `cost` fits. The caller is told what it needs to say how long to wait: the live total, the
-- time of the record whose expiry makes room and the cost up to it, and the newest record's time.
local function log_fits(policy, key, cost)
  local log = log_of(policy, key)
  local chunks, records, expired, in_next = log_expired(log, policy[3])
  local used, at, freed = log.total - expired, 0, 0
  local fits = used + cost <= policy[2]
  if not fits and cost <= policy[2] then
    local needed, i = used + cost - policy[2], chunks + 1
    while true do
      local _, total = log_entry(log, i)
      if freed + total - in_next >= needed then break end
      freed, i, records, in_next = freed + total - in_next, i + 1, 0, 0
    end
    local chunk = log_chunk(log, i)
    while freed < needed do
      local spent
      records = records + 1
      at, spent = log_record(chunk, records)
      freed = freed + spent
    end
  end
  local n = #digests
  digests[n + 1], digests[n + 2], digests[n + 3] = used, at, freed
  digests[n + 4] = used > 0 and log_newest(log) or 0
  return fits
end

-- Records that lie ahead of now become one record at now.
local function log_rebase(policy, key)
  local log, ahead = log_of(policy, key), 0
  if log_newest(log) <= now then return end
  while log_chunks(log) > 1 and log_entry(log, log_chunks(log) - 1) > now do
    local i = log_chunks(log)
    local _, total, count = log_entry(log, i)
    ahead, log.total, log.count = ahead + total, log.total - total, log.count - count
    log_drop(log, i)
  end
  local i, r = log_chunks(log), 1
  local _, _, count = log_entry(log, i)
  while log_record(log_chunk(log, i), r) <= now do r = r + 1 end
  log_append(log, now, ahead + log_cut(log, i, r, count))
end

local function log_charge(policy, key, cost)
  local log, limit = log_of(policy, key), policy[2]
  log_rebase(policy, key)
  local chunks, records = log_expired(log, policy[3])
  for _ = 1, chunks do
    local _, total, count = log_entry(log, 1)
    log.total, log.count = log.total - total, log.count - count
    log_drop(log, 1)
  end
  if records > 0 then log_cut(log, 1, 1, records) end
  cost = min(cost, max(0, 2 * limit - log.total))
  if cost == 0 then return end
  if log.count > 0 and (log.count >= limit or log_newest(log) == now) then
    local i = log_chunks(log)
    local _, _, count = log_entry(log, i)
    cost = cost + log_cut(log, i, count, count)
  end
  log_append(log, now, cost)
end

local function log_refund(policy, key, cost, charged_at)
  local log = log_of(policy, key)
  for i = 1, log_chunks(log) do
    local last, total, count, number = log_entry(log, i)
    if last >= charged_at then
      local chunk = log_chunk(log, i)
      for r = 1, count do
        local at, spent = log_record(chunk, r)
        if at == charged_at and cost >= spent then
          return log_cut(log, i, r, r)
        elseif at == charged_at then
          local less = chunk:sub(1, (r - 1) * RECORD_BYTES) .. write(RECORD, at, spent - cost)
            .. chunk:sub(r * RECORD_BYTES + 1)
          log.total = log.total - cost
          return log_put(log, i, number, less, total - cost)
        end
      end
      return
    end
  end
end

local log_kind = {
  never = function(policy, cost) return cost > policy[2] end,
  fits = log_fits,
  charge = log_charge,
  refund = log_refund,
  rebase = log_rebase,
}

local function log_write(log)
  local name, till = KEYS[log.key], log_newest(log) + log.window
  if log.cleared or till <= now then call('DEL', name) end
  if till <= now then return end
  if #log.dropped > 0 then call('HDEL', name, unpack(log.dropped)) end
  local fields = { 'd', write(HEAD, log.total, log.count) .. log.directory }
  for number in pairs(log.written) do
    fields[#fields + 1], fields[#fields + 2] = number, log.chunks[number]
  end
  call('HSET', name, unpack(fields))
  call('PEXPIREAT', name, ceil(till / 1000))
end

-- Bans --------------------------------------------------------------------------------------------
-- policy: 5, refusals, within, lasts, factor, longest, forgotten after
-- state:  strikes, bans, since, until, forgotten after

local function ban_rebased(state)
  local ahead = max(0, state[3] - now)
  return { state[1], state[2], min(state[3], now), max(0, state[4] - ahead), state[5] }
end

local function ban_fresh_at(state) return max(state[3], state[4]) + state[5] end
local function ban_keep(key, state) keep(key, state, ban_fresh_at(state)) end

local function is_banned(key)
  local state = state_of(key)
  return state and ban_rebased(state)[4] > now
end

local function ban_rebase(key)
  local state = state_of(key)
  if state and state[3] > now then ban_keep(key, ban_rebased(state)) end
end

local function strike(policy, key)
  local state, record = state_of(key), { 0, 0, now, 0 }
  if state and ban_fresh_at(state) > now then record = ban_rebased(state) end
  if record[1] == 0 or now - record[3] >= policy[3] then record[1], record[3] = 0, now end
  record[1] = record[1] + 1
  if record[1] >= policy[2] then
    record[1], record[3] = 0, now
    record[4] = now + min(policy[4] * policy[5] ^ record[2], policy[6])
    record[2] = min(record[2] + 1, 255)
  end
  record[5] = policy[7]
  ban_keep(key, record)
end

-- All rules or none -------------------------------------------------------------------------------

local kinds = { bucket, fixed, counter, log_kind }
local FIELDS = 8

local function charge_all(at, count)
  local admitted, verdicts = true, {}
  for i = 1, count do
    local c = at + (i - 1) * FIELDS
    local policy, cost, role = policies[requests[c]], requests[c + 2], requests[c + 3]
    local kind, verdict = kinds[policy[1]], ALLOW
    local never = kind.never(policy, cost)
    -- Looked at also when it can never fit: the caller tells what is left.
    local fits = kind.fits(policy, requests[c + 1], cost) and not never
    if not fits then verdict = role == SHADOW and SHADOW_DENY or DENY end
    local grace = policies[requests[c + 4]]
    local spare = grace and kinds[grace[1]].fits(grace, requests[c + 5], 1)
    if requests[c + 6] > 0 and role ~= SHADOW and is_banned(requests[c + 7]) then
      verdict = BAN
    elseif verdict == DENY and spare and not never then
      verdict = WARN
    end
    if verdict == DENY or verdict == BAN then admitted = false end
    verdicts[i] = verdict
  end
  for i = 1, count do
    local c = at + (i - 1) * FIELDS
    local policy, verdict = policies[requests[c]], verdicts[i]
    local kind = kinds[policy[1]]
    if admitted and verdict == ALLOW or requests[c + 3] == ALWAYS then
      kind.charge(policy, requests[c + 1], requests[c + 2])
    else
      kind.rebase(policy, requests[c + 1])
    end
    local grace = policies[requests[c + 4]]
    if grace then
      if admitted and verdict == WARN then
        kinds[grace[1]].charge(grace, requests[c + 5], 1)
      else
        kinds[grace[1]].rebase(grace, requests[c + 5])
      end
    end
    local ban = policies[requests[c + 6]]
    if ban then
      if verdict == DENY then
        strike(ban, requests[c + 7])
      else
        ban_rebase(requests[c + 7])
      end
    end
  end
  return admitted
end

local function forget(policy, key)
  if policy[1] == LOG then
    new_log(policy, key, true)
    changed[key] = true
  else
    keep(key, false, 0)
  end
end

-- Peek, force, refund and reset: done to each charge, whatever the others say.
local function amend(op, at, count, charged_at)
  for i = 1, count do
    local c = at + (i - 1) * FIELDS
    local policy, key, cost = policies[requests[c]], requests[c + 1], requests[c + 2]
    local kind = kinds[policy[1]]
    if op == PEEK then
      kind.fits(policy, key, cost)
      local grace = policies[requests[c + 4]]
      if grace then kinds[grace[1]].fits(grace, requests[c + 5], 1) end
    elseif op == FORCE then
      kind.rebase(policy, key)
      kind.fits(policy, key, cost)
      kind.charge(policy, key, cost)
    elseif op == REFUND then
      kind.rebase(policy, key)
      kind.refund(policy, key, cost, charged_at)
      kind.fits(policy, key, 0)
    else
      forget(policy, key)
      local grace, ban = policies[requests[c + 4]], policies[requests[c + 6]]
      if grace then forget(grace, requests[c + 5]) end
      if ban then forget(ban, requests[c + 7]) end
    end
  end
end

local at, total = 1, #requests
while at <= total do
  local op, charged_at, count = requests[at], requests[at + 1], requests[at + 2]
  at = at + 3
  local admitted = true
  if op == CHARGE then
    admitted = charge_all(at, count)
  else
    amend(op, at, count, charged_at)
  end
  answers[#answers + 1] = admitted and '1' or '0'
  at = at + count * FIELDS
end

-- What was changed is written last: where memory is full the first write stops the script, and then
-- nothing has been charged.
for key, till in pairs(changed) do
  if logs[key] then
    log_write(logs[key])
  elseif till > now then
    call('SET', KEYS[key], pack(unpack(states[key])), 'PXAT', ceil(till / 1000))
  elseif held[key] then
    call('DEL', KEYS[key])
  end
end

return { now, table.concat(answers), digests, held }
