-- Prepares one request per key. The order of keys looks random but is the same for every contender.
local requests = {}
function init(args)
  local headers = { ["Content-Type"] = "application/json" }
  local key = 0
  for at = 1, KEYS do
    key = (key * 1103515245 + 12345) % 2147483648
    local name = string.format("key:%012d", key % KEYS)
    requests[at] = wrk.format("POST", "TARGET", headers, (string.gsub('BODY', "NAME", name)))
  end
end
local at = 0
function request()
  at = at % KEYS + 1
  return requests[at]
end
