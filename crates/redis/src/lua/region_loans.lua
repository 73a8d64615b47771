-- Adds to the numbers of units that the region of this store has lent, and reads them. The nodes that
-- borrow report what they were granted and what they returned; decisions never touch this key.
--
-- KEYS[1]   a hash: one field for each rule, borrowing region, and kind of number
-- ARGV      milliseconds until the hash expires; then the name of a field and the number to add, …
-- returns   the number of each field

local totals, changed = {}, false
for at = 2, #ARGV, 2 do
  local total = tonumber(redis.call('HGET', KEYS[1], ARGV[at]) or 0) or 0
  local added = tonumber(ARGV[at + 1])
  if added > 0 then
    total, changed = total + added, true
    redis.call('HSET', KEYS[1], ARGV[at], string.format('%.0f', total))
  end
  totals[#totals + 1] = string.format('%.0f', total)
end
if changed then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return totals
