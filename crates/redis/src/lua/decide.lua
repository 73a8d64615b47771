-- Decides a batch of requests at one instant of this server's clock. Each request is atomic: either
-- all of its rules are charged or none is.
--
-- KEYS      the pages and logs that the batch uses, each listed once
-- ARGV[1]   policies: a kind, six numbers and a tag each (POLICY). The section of each kind below
--           explains its numbers.
-- ARGV[2]   requests: an operation, the number of charges and the first charge (REQUEST), then the
--           other charges (CHARGED). A charge has a policy, page, record, cost and flags. The flags
--           hold the role and two bits: whether a grace policy and whether a ban policy follow,
--           each as policy, page and record (EXTRA).
--           A refund or renewal is preceded by a MOMENT request without charges, whose cost field
--           is the time of the original charge. The charges of a grant are followed by its terms:
--           the most, how much to leave, and the part of the rest (TERMS).
--           A PLAIN request has one charge for each of its pages, with a shape in place of the
--           policy. Its record is the first of the page; the records of the shape follow it.
-- ARGV[3]   shapes: the number of policies, then the policies in the order of their tags
-- returns   now, '1' (admitted) or '0' for each request, digests of the logs that were read and the
--           numbers that were granted, and the content of each page before the batch
--
-- The script only decides and writes. The caller computes retry times and remaining quota by
-- replaying the batch from the returned page contents. Terms and arithmetic match tidegate-core.
-- All numbers are integers below 2^53, where doubles are exact.
--
-- A page holds the counters of one owner as records, each with the tag of its rule and a state.
-- Calling a command costs the server more than everything else in this script, so three rules on
-- one page cost little more than one. Records are sorted by tag (ORDER), and so are the policies of
-- a shape. A page and a tag identify a record; the batch also numbers each record. A log has a
-- separate key.
--
-- A state is four numbers plus its expiry. The third and fourth seldom change and are stored first.
-- The expiry is never before the state equals a fresh one, and at most `slack` later. So most
-- writes keep the expiry and can use SETRANGE, which costs the server half as much as SET … PXAT.
--
-- A page expires with the last of its records. Once a page is long, writing it drops the records
-- that have expired. A key that exists when the script starts exists until it ends, because the
-- server freezes expiry while a script runs. MARGIN covers a slot that moves to a server whose
-- clock is behind: MIGRATE transfers a key's remaining time to live, not its expiry time.
--
-- Most requests are plain: bucket charges that fit. The loop at the end decides those. `careful`
-- handles the others and is built only on demand, because in Lua 5.1 defining a function costs the
-- server more than calling it.

local POLICY, POLICY_BYTES = '>BI7I7I7I7I7I7c8', 51
local REQUEST, CHARGED, EXTRA, TERMS = '>BHHHHI7B', '>HHHI7B', '>HHH', '>I7I7I7'
local RECORD, RECORD_BYTES, ORDER = '>c8I7I7I7I7I7', 43, '>I6'
local STATE, STATE_AT, EXPIRY, EXPIRY_AT, PAIR = '>I7I7I7I7I7', 8, '>I7', 36, '>I7I7'
local MARGIN, LONG = 1000000, 12
local CHARGE, PEEK, FORCE, REFUND, PLAIN, MOMENT = 0, 1, 2, 3, 5, 6

local call, read, write = redis.call, struct.unpack, struct.pack
local format, find, sub = string.format, string.find, string.sub
local KEYS, requests, sent, policies = KEYS, ARGV[2], ARGV[1], {}
for i = 0, #sent / POLICY_BYTES - 1 do
  policies[i + 1] = { read(POLICY, sent, i * POLICY_BYTES + 1) }
end
local shapes, shaped, sizes = {}, 1, ARGV[3]
while shaped <= #sizes do
  local shape, count = {}
  count, shaped = read('>H', sizes, shaped)
  for i = 1, count do shape[i], shaped = read('>H', sizes, shaped) end
  shapes[#shapes + 1] = shape
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local held = call('MGET', unpack(KEYS))
local digests = {}

-- Returns the offset of the record with this tag. Skips state bytes that happen to look like the
-- tag.
local function spot(page, tag)
  local at = find(page, tag, 1, true)
  while at and at % RECORD_BYTES ~= 1 do at = find(page, tag, at + 1, true) end
  return at
end

-- Returns the page with one more record, inserted in tag order.
local function insert(page, record)
  local order, at = read(ORDER, record), 1
  while at <= #page and read(ORDER, page, at) < order do at = at + RECORD_BYTES end
  return sub(page, 1, at - 1) .. record .. sub(page, at)
end

-- Writes a page that expires with its last record. Drops expired records from a long page.
local function store(name, page)
  local at, last, long = 1, now + MARGIN, #page > LONG * RECORD_BYTES
  while at <= #page do
    local expires = read(EXPIRY, page, at + EXPIRY_AT)
    if expires > last then last = expires end
    if long and expires <= now then
      page = sub(page, 1, at - 1) .. sub(page, at + RECORD_BYTES)
    else
      at = at + RECORD_BYTES
    end
  end
  if page == '' then
    call('DEL', name)
  else
    call('SET', name, page, 'PXAT', format('%d', last / 1000))
  end
end

-- Builds the path for requests that are not plain. Returns a function that decides one request, and
-- one that writes all changes.
local function careful()
  local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
  local BUCKET, LOG = 1, 4
  local RENEW, GRANT = 7, 8
  local ENFORCE, SHADOW, ALWAYS = 0, 1, 2
  local ALLOW, DENY, SHADOW_DENY, WARN, BAN = 0, 1, 2, 3, 4
  local SLACK = 2 * MARGIN

  -- Per record: n1 to n4 are the state (`n1` is false if none is stored) and n5 its expiry; `seen`
  -- is READ or CHANGED; `till` is when a changed state equals a fresh one, and `slacks` how much
  -- longer it may be stored; then its page and tag. The tables are copies of `held`, which is long
  -- enough for most batches: growing them one element at a time would cost more than deciding.
  -- Below, a key is the number of a record or of a log.
  local n1, n2, n3, n4 = { unpack(held) }, { unpack(held) }, { unpack(held) }, { unpack(held) }
  local n5, seen, till, slacks = { unpack(held) }, { unpack(held) }, { unpack(held) }, { unpack(held) }
  local page_of, tag_of = { unpack(held) }, { unpack(held) }
  local READ, CHANGED = 1, 2
  local logs, records = {}, 0

  -- Returns the page's content, or nothing if its length shows that this script did not write it.
  local function page_held(page)
    local bytes = held[page]
    return bytes and #bytes % RECORD_BYTES == 0 and bytes
  end

  local function see(key)
    local seen_as = seen[key]
    if seen_as == READ or seen_as == CHANGED then return end
    seen[key] = READ
    local page = page_held(page_of[key])
    local at = page and spot(page, tag_of[key])
    if at then
      n3[key], n4[key], n1[key], n2[key], n5[key] = read(STATE, page, at + STATE_AT)
    else
      n1[key], n5[key] = false, 0
    end
  end

  -- Sets a state; `finish` writes it at the end of the batch.
  local function keep(key, a, b, c, d, fresh_at, slack)
    see(key)
    n1[key], n2[key], n3[key], n4[key], seen[key] = a, b, c, d, CHANGED
    till[key], slacks[key] = fresh_at, slack or SLACK
  end

  -- Encodes a changed record, as '' if it equals a fresh one. Also returns whether its expiry is
  -- unchanged.
  local function changed(key)
    local expires, fresh_at, slack = n5[key], till[key], slacks[key]
    if fresh_at <= now then return '', false end
    local spare = expires - fresh_at
    local kept = spare >= MARGIN and spare <= slack
    if not kept then
      expires = fresh_at + slack
      expires = expires - expires % 1000
    end
    return write(RECORD, tag_of[key], n3[key], n4[key], n1[key], n2[key], expires), kept
  end

  -- Writes a page whose records in `keys` changed.
  local function put(page, keys)
    local bytes, stays = page_held(page) or '', true
    for i = 1, #keys do
      local record, kept = changed(keys[i])
      local at = spot(bytes, tag_of[keys[i]])
      stays = stays and kept
      if at then
        bytes = sub(bytes, 1, at - 1) .. record .. sub(bytes, at + RECORD_BYTES)
      elseif record ~= '' then
        bytes = insert(bytes, record)
      end
    end
    if stays then
      call('SETRANGE', KEYS[page], '0', bytes)
    elseif bytes ~= '' or held[page] then
      store(KEYS[page], bytes)
    end
  end

  -- Buckets ---------------------------------------------------------------------------------------
  -- policy: 1, units per microsecond, units per request, capacity, ceiling, in force since, slack
  -- state:  used, at, units per microsecond, units per request

  local function bucket()
    local function drained(used, at, per_micro, upto)
      if upto <= at then return used end
      return max(0, used - (upto - at) * per_micro)
    end

    -- Units in use at `now`, converted to this policy's scale from a state written under another
    -- policy.
    local function bucket_carried(policy, key)
      local used, at, per_micro, per_request = n1[key], n2[key], n3[key], n4[key]
      local since = policy[6]
      if per_micro == policy[2] and per_request == policy[3] then
        local upto = min(since, now)
        return drained(min(drained(used, at, per_micro, upto), policy[5]), upto, per_micro, now)
      end
      if drained(used, at, per_micro, now) == 0 then return 0 end
      local from = min(max(at, since), now)
      local counted = ceil(drained(used, at, per_micro, from) / per_request)
      return drained(min(counted * policy[3], policy[5]), from, policy[2], now)
    end

    -- Units in use at `now`.
    local function bucket_used(policy, key)
      see(key)
      local used = n1[key]
      if not used then return 0 end
      local at, per_micro = n2[key], policy[2]
      if n3[key] ~= per_micro or n4[key] ~= policy[3] or at < policy[6] then
        return bucket_carried(policy, key)
      end
      if used > policy[5] then used = policy[5] end
      if at < now then
        used = used - (now - at) * per_micro
        if used < 0 then return 0 end
      end
      return used
    end

    local function bucket_keep(policy, key, used)
      local per_micro = policy[2]
      keep(key, used, now, per_micro, policy[3], now + ceil(used / per_micro), policy[7])
    end

    return {
      fits = function(policy, key, cost)
        local used = bucket_used(policy, key)
        return used + cost * policy[3] <= policy[4], used
      end,
      room = function(policy, key)
        return floor((policy[4] - bucket_used(policy, key)) / policy[3])
      end,
      charge = function(policy, key, cost, used)
        used = used + cost * policy[3]
        if used > policy[5] then used = policy[5] end
        bucket_keep(policy, key, used)
      end,
      refund = function(policy, key, cost, charged_at)
        local used = bucket_used(policy, key)
        if not n1[key] or charged_at < policy[6] then return end
        local back = max(0, cost * policy[3] - max(0, now - charged_at) * policy[2])
        bucket_keep(policy, key, max(0, used - back))
      end,
      rebase = function(policy, key)
        see(key)
        if not n1[key] then return end
        if n2[key] > now or n3[key] ~= policy[2] or n4[key] ~= policy[3] then
          bucket_keep(policy, key, bucket_used(policy, key))
        end
      end,
    }
  end

  -- Fixed windows ---------------------------------------------------------------------------------
  -- policy: 2, requests, window
  -- state:  window number, count

  local function fixed_window()
    local function fixed_count(policy, key)
      see(key)
      if n1[key] and n1[key] >= floor(now / policy[3]) then return n2[key] end
      return 0
    end

    local function fixed_keep(policy, key, count)
      local window = floor(now / policy[3])
      keep(key, window, count, 0, 0, count > 0 and (window + 1) * policy[3] or 0)
    end

    return {
      fits = function(policy, key, cost)
        local count = fixed_count(policy, key)
        return count + cost <= policy[2], count
      end,
      room = function(policy, key) return policy[2] - fixed_count(policy, key) end,
      charge = function(policy, key, cost, count)
        fixed_keep(policy, key, min(count + cost, max(2 * policy[2], count)))
      end,
      refund = function(policy, key, cost, charged_at)
        local count = fixed_count(policy, key)
        if not n1[key] then return end
        local same = floor(charged_at / policy[3]) == floor(now / policy[3])
        if same then count = max(0, count - cost) end
        fixed_keep(policy, key, count)
      end,
      rebase = function(policy, key)
        see(key)
        if n1[key] and n1[key] > floor(now / policy[3]) then fixed_keep(policy, key, n2[key]) end
      end,
    }
  end

  -- Sliding window counters -----------------------------------------------------------------------
  -- policy: 3, requests, window, microseconds per tick, ticks per window, largest count
  -- state:  window number, current, previous

  local function window_counter()
    local function counter_fold(policy, key)
      return min(n2[key] + n3[key], max(2 * policy[2], n2[key]))
    end

    local function counter_pair(policy, key)
      see(key)
      local kept, window, current, previous = n1[key], floor(now / policy[3]), 0, 0
      if not kept then return 0, 0 end
      if kept > window then
        current = counter_fold(policy, key)
      elseif kept == window then
        current, previous = n2[key], n3[key]
      elseif kept + 1 == window then
        previous = n2[key]
      end
      return min(current, policy[6]), min(previous, policy[6])
    end

    local function counter_keep(policy, key, current, previous)
      local window, fresh_at = floor(now / policy[3]), 0
      if current > 0 then
        fresh_at = (window + 2) * policy[3]
      elseif previous > 0 then
        fresh_at = (window + 1) * policy[3]
      end
      keep(key, window, current, previous, 0, fresh_at)
    end

    local function counter_room(policy, key)
      local current, previous = counter_pair(policy, key)
      local left = policy[5] - floor(now % policy[3] / policy[4])
      return policy[2] - current - ceil(previous * left / policy[5])
    end

    return {
      fits = function(policy, key, cost) return cost <= counter_room(policy, key) end,
      room = counter_room,
      charge = function(policy, key, cost)
        local current, previous = counter_pair(policy, key)
        counter_keep(policy, key, min(current + cost, max(2 * policy[2], current)), previous)
      end,
      refund = function(policy, key, cost, charged_at)
        local current, previous = counter_pair(policy, key)
        if not n1[key] then return end
        local ago = floor(now / policy[3]) - floor(charged_at / policy[3])
        if ago == 0 then
          current = max(0, current - cost)
        elseif ago == 1 then
          previous = max(0, previous - cost)
        end
        counter_keep(policy, key, current, previous)
      end,
      rebase = function(policy, key)
        see(key)
        if n1[key] and n1[key] > floor(now / policy[3]) then
          counter_keep(policy, key, counter_fold(policy, key), 0)
        end
      end,
    }
  end

  -- Sliding window logs ---------------------------------------------------------------------------
  -- policy: 4, requests, window, maximum number of records. Concurrency slots use a log whose
  --         window is their hold time and which has room for all of them; a slot is found by its
  --         record's time.
  --
  -- Stored as a hash: numbered chunks of records (at, cost), oldest first, and a directory `d`. The
  -- directory holds the total and count of all records. For each chunk it holds the time of the
  -- last record, the total, the count and the chunk's number. A call reads the directory and two or
  -- three chunks, so its work grows with the square root of the log.

  local function window_log()
    local HEAD, HEAD_BYTES = '>I3I3', 6
    local ENTRY, ENTRY_BYTES = '>I7I3I1I4', 15
    local RECORD, RECORD_BYTES = '>I7I3', 10
    local CHUNK = 64

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
      local bytes = call('HGET', KEYS[page_of[key]], 'd')
      if bytes then
        log.total, log.count = read(HEAD, bytes)
        log.directory = bytes:sub(HEAD_BYTES + 1)
      end
      return log
    end

    -- The number of chunks, the directory's entry for the i-th chunk, and the r-th record of a
    -- chunk.
    local function log_chunks(log) return #log.directory / ENTRY_BYTES end
    local function log_entry(log, i) return read(ENTRY, log.directory, (i - 1) * ENTRY_BYTES + 1) end
    local function log_record(chunk, r) return read(RECORD, chunk, (r - 1) * RECORD_BYTES + 1) end

    local function log_chunk(log, i)
      local _, _, _, number = log_entry(log, i)
      local chunk = log.chunks[number]
      if not chunk then
        chunk = call('HGET', KEYS[page_of[log.key]], number)
        log.chunks[number] = chunk
      end
      return chunk
    end

    -- Replaces the i-th entry of the directory; an empty `entry` removes it.
    local function log_tell(log, i, entry)
      local directory = log.directory
      log.directory = directory:sub(1, (i - 1) * ENTRY_BYTES) .. entry
        .. directory:sub(i * ENTRY_BYTES + 1)
      seen[log.key] = CHANGED
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

    -- The total cost of the records `from` to `till` of a chunk.
    local function log_cost(chunk, from, till)
      local cost = 0
      for r = from, till do
        local _, spent = log_record(chunk, r)
        cost = cost + spent
      end
      return cost
    end

    -- Removes the records `from` to `till` from the i-th chunk and returns their cost.
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
        -- Chunk numbers have four bytes; they wrap around in a log that never becomes empty.
        next_number = (number + 1) % 2 ^ 32
      end
      log_put(log, i + 1, next_number, write(RECORD, at, cost), cost)
    end

    local function log_newest(log)
      local chunks = log_chunks(log)
      return chunks > 0 and log_entry(log, chunks) or 0
    end

    -- Counts what has expired: whole chunks, then records of the next chunk. Returns both counts,
    -- the cost of everything expired, and the cost of those last records.
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

    -- Whether `cost` fits. Adds a digest from which the caller computes the wait: the live total,
    -- the time of the record whose expiry makes room and the cost up to it, the newest record's
    -- time, and the time and cost of the oldest live record.
    local function log_fits(policy, key, cost)
      local log = log_of(policy, key)
      local chunks, records, expired, in_next = log_expired(log, policy[3])
      local used, at, freed = log.total - expired, 0, 0
      local fits, oldest, first = used + cost <= policy[2], 0, 0
      if used > 0 then oldest, first = log_record(log_chunk(log, chunks + 1), records + 1) end
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
      digests[n + 5], digests[n + 6] = oldest, first
      return fits
    end

    -- Merges all records at or after `now` into one record at `now`, after the clock went back.
    local function log_rebase(policy, key)
      local log, ahead = log_of(policy, key), 0
      if log_newest(log) <= now then return end
      while log_chunks(log) > 1 and log_entry(log, log_chunks(log) - 1) >= now do
        local i = log_chunks(log)
        local _, total, count = log_entry(log, i)
        ahead, log.total, log.count = ahead + total, log.total - total, log.count - count
        log_drop(log, i)
      end
      local i, r = log_chunks(log), 1
      local _, _, count = log_entry(log, i)
      while log_record(log_chunk(log, i), r) < now do r = r + 1 end
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
      if log.count > 0 and (log.count >= policy[4] or log_newest(log) == now) then
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

    -- Renews concurrency slots from now, including those that have expired. Ordinary logs are not
    -- renewed.
    local function log_renew(policy, key, cost, charged_at)
      if policy[4] == policy[2] then return end
      log_refund(policy, key, cost, charged_at)
      log_charge(policy, key, cost)
    end

    local function log_room(policy, key)
      local log = log_of(policy, key)
      local _, _, expired = log_expired(log, policy[3])
      return policy[2] - (log.total - expired)
    end

    return {
      fits = log_fits,
      room = log_room,
      charge = log_charge,
      refund = log_refund,
      renew = log_renew,
      rebase = log_rebase,
      write = function(log)
        local name, fresh_at = KEYS[page_of[log.key]], 0
        if log.count > 0 then fresh_at = log_newest(log) + log.window end
        if log.cleared or fresh_at <= now then call('DEL', name) end
        if fresh_at <= now then return end
        if #log.dropped > 0 then call('HDEL', name, unpack(log.dropped)) end
        local fields = { 'd', write(HEAD, log.total, log.count) .. log.directory }
        for number in pairs(log.written) do
          fields[#fields + 1], fields[#fields + 2] = number, log.chunks[number]
        end
        call('HSET', name, unpack(fields))
        call('PEXPIREAT', name, ceil(fresh_at / 1000))
      end,
      forget = function(policy, key)
        new_log(policy, key, true)
        seen[key] = CHANGED
      end,
    }
  end

  -- Bans ------------------------------------------------------------------------------------------
  -- policy: 5, refusals, within, lasts, factor, longest, forgotten after
  -- state:  strikes + 2^24 * bans, since, until, forgotten after

  local function ban_kind()
    local STRIKES = 2 ^ 24

    -- When the strikes began to count and when the ban ends, corrected for a clock that went back.
    local function ban_span(key)
      return min(n2[key], now), max(0, n3[key] - max(0, n2[key] - now))
    end

    local function is_banned(key)
      see(key)
      if not n1[key] then return false end
      local _, ends = ban_span(key)
      return ends > now
    end

    local function ban_keep(key, strikes, bans, since, ends, forgotten)
      keep(key, strikes + STRIKES * bans, since, ends, forgotten, max(since, ends) + forgotten)
    end

    local function ban_rebase(key)
      see(key)
      if n1[key] and n2[key] > now then
        local since, ends = ban_span(key)
        ban_keep(key, n1[key] % STRIKES, floor(n1[key] / STRIKES), since, ends, n4[key])
      end
    end

    local function strike(policy, key)
      see(key)
      local strikes, bans, since, ends = 0, 0, now, 0
      if n1[key] and max(n2[key], n3[key]) + n4[key] > now then
        strikes, bans = n1[key] % STRIKES, floor(n1[key] / STRIKES)
        since, ends = ban_span(key)
      end
      if strikes == 0 or now - since >= policy[3] then strikes, since = 0, now end
      strikes = strikes + 1
      if strikes >= policy[2] then
        strikes, since = 0, now
        ends = now + min(policy[4] * policy[5] ^ bans, policy[6])
        bans = min(bans + 1, 255)
      end
      ban_keep(key, strikes, bans, since, ends, policy[7])
    end

    return { is_banned = is_banned, rebase = ban_rebase, strike = strike }
  end

  -- All or nothing --------------------------------------------------------------------------------

  local makers, kinds = { bucket, fixed_window, window_counter, window_log, ban_kind }, {}
  for _, policy in ipairs(policies) do
    local kind = policy[1]
    kinds[kind] = kinds[kind] or makers[kind]()
  end
  local bans, at = kinds[5], 1

  -- The charges of the current request.
  local policy_of, key_of, cost_of, role_of, grace_of, grace_key, ban_of, ban_key =
    {}, {}, {}, {}, {}, {}, {}, {}
  local verdicts, memos, grace_memos = {}, {}, {}

  -- Resolves a policy and registers the page and tag of the record that it applies to.
  local function place(policy, page, record)
    policy = policies[policy]
    page_of[record], tag_of[record] = page, policy[8]
    if record > records then records = record end
    return policy, record
  end

  local function read_charge(i)
    local policy, page, record, flags
    policy, page, record, cost_of[i], flags, at = read(CHARGED, requests, at)
    policy_of[i], key_of[i] = place(policy, page, record)
    if flags < 4 then
      role_of[i], grace_of[i], ban_of[i] = flags, false, false
      return
    end
    role_of[i], grace_of[i], ban_of[i] = flags % 4, false, false
    if flags % 8 >= 4 then
      policy, page, record, at = read(EXTRA, requests, at)
      grace_of[i], grace_key[i] = place(policy, page, record)
    end
    if flags >= 8 then
      policy, page, record, at = read(EXTRA, requests, at)
      ban_of[i], ban_key[i] = place(policy, page, record)
    end
  end

  -- Reads the charges of a plain request and returns how many there are.
  local function read_shapes(count)
    local charges = 0
    for _ = 1, count do
      local shape, page, record, cost
      shape, page, record, cost, _, at = read(CHARGED, requests, at)
      for i, policy in ipairs(shapes[shape]) do
        charges = charges + 1
        policy_of[charges], key_of[charges] = place(policy, page, record + i - 1)
        cost_of[charges], role_of[charges] = cost, ENFORCE
        grace_of[charges], ban_of[charges] = false, false
      end
    end
    return charges
  end

  -- Whether the cost exceeds what the policy could ever admit.
  local function never_fits(policy, cost)
    if policy[1] == BUCKET then return cost * policy[3] > policy[4] end
    return cost > policy[2]
  end

  -- Returns the verdict of a charge after applying its ban and its grace (warning) policy.
  local function penalised(i, verdict)
    local grace, ban = grace_of[i], ban_of[i]
    local spare
    if grace then spare, grace_memos[i] = kinds[grace[1]].fits(grace, grace_key[i], 1) end
    if ban and role_of[i] ~= SHADOW and bans.is_banned(ban_key[i]) then return BAN end
    if verdict == DENY and spare and not never_fits(policy_of[i], cost_of[i]) then return WARN end
    return verdict
  end

  -- Counts a warning that was issued, and counts a refusal towards a ban.
  local function punish(i, verdict, admitted)
    local grace, ban = grace_of[i], ban_of[i]
    if grace then
      local kind = kinds[grace[1]]
      if admitted and verdict == WARN then
        kind.charge(grace, grace_key[i], 1, grace_memos[i])
      else
        kind.rebase(grace, grace_key[i])
      end
    end
    if ban then
      if verdict == DENY then bans.strike(ban, ban_key[i]) else bans.rebase(ban_key[i]) end
    end
  end

  local function charge_all(count)
    local admitted = true
    for i = 1, count do
      local policy, verdict = policy_of[i], ALLOW
      local fits, memo = kinds[policy[1]].fits(policy, key_of[i], cost_of[i])
      memos[i] = memo
      if not fits then verdict = role_of[i] == SHADOW and SHADOW_DENY or DENY end
      if grace_of[i] or ban_of[i] then verdict = penalised(i, verdict) end
      if verdict == DENY or verdict == BAN then admitted = false end
      verdicts[i] = verdict
    end
    for i = 1, count do
      local policy, verdict = policy_of[i], verdicts[i]
      local kind = kinds[policy[1]]
      if admitted and verdict == ALLOW or role_of[i] == ALWAYS then
        kind.charge(policy, key_of[i], cost_of[i], memos[i])
      else
        kind.rebase(policy, key_of[i])
      end
      if grace_of[i] or ban_of[i] then punish(i, verdict, admitted) end
    end
    return admitted
  end

  local function forget(policy, key)
    if policy[1] == LOG then
      kinds[LOG].forget(policy, key)
    else
      keep(key, false, 0, 0, 0, 0)
    end
  end

  -- Grants each charge, independently of the others, part of the room that its counter has. The
  -- cost is the least to grant.
  local function grant(count, most, leave, part)
    for i = 1, count do
      local policy, key, least, units = policy_of[i], key_of[i], cost_of[i], 0
      local kind = kinds[policy[1]]
      kind.rebase(policy, key)
      local fits, memo = kind.fits(policy, key, least + leave)
      if fits then
        units = min(most, max(least, floor((kind.room(policy, key) - leave) / part)))
        kind.charge(policy, key, units, memo)
      end
      digests[#digests + 1] = units
    end
  end

  -- Peek, force, refund, renew and reset: applied to each charge independently of the others.
  local function amend(op, count, charged_at)
    for i = 1, count do
      local policy, key, cost = policy_of[i], key_of[i], cost_of[i]
      local kind, grace, ban = kinds[policy[1]], grace_of[i], ban_of[i]
      if op == PEEK then
        kind.fits(policy, key, cost)
        if grace then kinds[grace[1]].fits(grace, grace_key[i], 1) end
      elseif op == FORCE then
        kind.rebase(policy, key)
        local _, memo = kind.fits(policy, key, cost)
        kind.charge(policy, key, cost, memo)
      elseif op == REFUND or op == RENEW then
        kind.rebase(policy, key)
        local change = op == REFUND and kind.refund or kind.renew
        if change then change(policy, key, cost, charged_at) end
        kind.fits(policy, key, 0)
      else
        forget(policy, key)
        if grace then forget(grace, grace_key[i]) end
        if ban then forget(ban, ban_key[i]) end
      end
    end
  end

  local function decide(op, count, from, charged_at)
    at = from
    if op == PLAIN then
      count = read_shapes(count)
    else
      for i = 1, count do read_charge(i) end
    end
    local admitted = true
    if op == CHARGE or op == PLAIN then
      admitted = charge_all(count)
    elseif op == GRANT then
      local most, leave, part
      most, leave, part, at = read(TERMS, requests, at)
      grant(count, most, leave, part)
    else
      amend(op, count, charged_at)
    end
    return admitted, at
  end

  local function finish()
    local pages = {}
    for key = 1, records do
      if seen[key] == CHANGED then
        local page = page_of[key]
        if logs[key] then
          kinds[LOG].write(logs[key])
        elseif pages[page] then
          table.insert(pages[page], key)
        else
          pages[page] = { key }
        end
      end
    end
    for page, keys in pairs(pages) do put(page, keys) end
  end

  return decide, finish
end

-- Plain requests ----------------------------------------------------------------------------------
-- A plain request charges only buckets, enforced, without warnings or bans, and no other request of
-- the batch uses its pages. It falls back to `careful` if it does not fit, or if a page is not what
-- plain requests would write. Each record is read as its head (tag and units), used, at and expiry.

local PART, LEVEL_AT, WHOLE = 'c22I7I7I7', '22', '0'
local ONE, values, layouts, decide, finish = '>' .. PART, {}, {}
local answers, answered, size, at, charged_at = {}, 0, #requests, 1, 0

for i = 1, #policies do
  local policy = policies[i]
  policy.head = policy[8] .. write(PAIR, policy[2], policy[3])
end

-- The pending writes of a request: page, content, offset, and whether the expiry moves.
local names, written, offsets, later = {}, {}, {}, {}

while at <= size do
  local op, count, shape, page, _, cost, _, next_at = read(REQUEST, requests, at)
  local plain = op == PLAIN
  if plain then
    for i = 1, count do
      if i > 1 then shape, page, _, cost, _, next_at = read(CHARGED, requests, next_at) end
      shape = shapes[shape]
      local bytes, stays, rule, policy = held[page], true, 1, policies[shape[1]]
      local records = bytes and #bytes / RECORD_BYTES or #shape
      plain = records % 1 == 0 and records <= LONG
      if not plain then break end
      local used, since
      for record = 1, records do
        local head, expires
        if bytes then
          head, used, since, expires = read(ONE, bytes, record * RECORD_BYTES - RECORD_BYTES + 1)
        else
          head, used, since, expires = policy.head, 0, now, 0
        end
        if policy and head == policy.head then
          local per_micro = policy[2]
          plain = since >= policy[6] and since <= now and used <= policy[5]
          used = used - (now - since) * per_micro
          if used < 0 then used = 0 end
          used, since = used + cost * policy[3], now
          plain = plain and used <= policy[4]
          if not plain then break end
          local over = used % per_micro
          local fresh_at = now + (used - over) / per_micro
          if over > 0 then fresh_at = fresh_at + 1 end
          -- The expiry cannot be too late: a plain charge never makes a state equal a fresh one
          -- sooner.
          if expires < fresh_at + MARGIN then
            expires, stays = fresh_at + policy[7], false
            expires = expires - expires % 1000
          end
          rule = rule + 1
          policy = policies[shape[rule]]
        end
        if records > 1 or not stays then
          local k = 4 * record
          values[k - 3], values[k - 2], values[k - 1], values[k] = head, used, since, expires
        end
      end
      -- A policy is left over if the page has no record for it yet.
      plain = plain and not policy
      if not plain then break end
      names[i], later[i] = KEYS[page], not stays
      if records == 1 and stays then
        offsets[i], written[i] = LEVEL_AT, write(PAIR, used, since)
      else
        local layout = layouts[records]
        if not layout then
          layout = '>' .. string.rep(PART, records)
          layouts[records] = layout
        end
        offsets[i], written[i] = WHOLE, write(layout, unpack(values, 1, 4 * records))
      end
    end
  end
  if plain then
    for i = 1, count do
      if later[i] then
        store(names[i], written[i])
      else
        call('SETRANGE', names[i], offsets[i], written[i])
      end
    end
    answered, at = answered + 1, next_at
    answers[answered] = '1'
  elseif op == MOMENT then
    charged_at, at = cost, next_at
  else
    if not decide then decide, finish = careful() end
    local admitted
    admitted, at = decide(op, count, at + 3, charged_at)
    answered = answered + 1
    answers[answered] = admitted and '1' or '0'
  end
end

-- If the server's memory is full, the first write aborts the script, and nothing has been charged.
if finish then finish() end
return { now, table.concat(answers), digests, held }
