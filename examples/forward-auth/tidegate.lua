-- Asks tidegate about the request that HAProxy holds, and leaves the answer in variables:
-- txn.limit (allow or deny; not set while tidegate is away, so that requests pass), txn.limit_state, txn.limit_retry.

local URL = 'http://127.0.0.1:8081/v1/forward-auth'

-- Headers of this hop, and those that we set ourselves.
local OURS = {
  ['host'] = true, ['connection'] = true, ['content-length'] = true, ['transfer-encoding'] = true,
  ['upgrade'] = true, ['te'] = true, ['keep-alive'] = true, ['expect'] = true,
  ['x-forwarded-for'] = true, ['x-forwarded-method'] = true, ['x-forwarded-uri'] = true,
  ['x-original-method'] = true, ['x-original-uri'] = true, ['x-original-url'] = true,
}

core.register_action('tidegate', { 'http-req' }, function(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not OURS[name] then
      headers[name] = {}
      for i, value in pairs(values) do headers[name][i + 1] = value end
    end
  end
  headers['x-forwarded-method'] = { txn.f:method() }
  headers['x-forwarded-uri'] = { txn.f:pathq() }
  headers['x-forwarded-for'] = { txn.f:src() }
  local answer = core.httpclient():get({ url = URL, headers = headers, timeout = 100 })
  if not answer or not answer.headers then return end
  local said = function(name) return answer.headers[name] and answer.headers[name][0] end
  local decision = said('x-ratelimit-decision')
  if not decision then return end
  txn:set_var('txn.limit', decision)
  if said('ratelimit') then txn:set_var('txn.limit_state', said('ratelimit')) end
  if said('retry-after') then txn:set_var('txn.limit_retry', said('retry-after')) end
end)
