-- Calls tidegate for the current request and stores the response in variables:
--   txn.limit        allow or deny; not set while tidegate is down, so that requests pass
--   txn.limit_state  the RateLimit header
--   txn.limit_retry  the Retry-After header

local URL = 'http://127.0.0.1:8081/v1/forward-auth'

-- Headers that are not copied: those of this connection, and those that are set below.
local NOT_COPIED = {
  ['host'] = true, ['connection'] = true, ['content-length'] = true, ['transfer-encoding'] = true,
  ['upgrade'] = true, ['te'] = true, ['keep-alive'] = true, ['expect'] = true,
  ['x-forwarded-for'] = true, ['x-forwarded-method'] = true, ['x-forwarded-uri'] = true,
  ['x-original-method'] = true, ['x-original-uri'] = true, ['x-original-url'] = true,
}

core.register_action('tidegate', { 'http-req' }, function(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not NOT_COPIED[name] then
      headers[name] = {}
      for i, value in pairs(values) do headers[name][i + 1] = value end
    end
  end
  headers['x-forwarded-method'] = { txn.f:method() }
  headers['x-forwarded-uri'] = { txn.f:pathq() }
  headers['x-forwarded-for'] = { txn.f:src() }
  local response = core.httpclient():get({ url = URL, headers = headers, timeout = 100 })
  if not response or not response.headers then return end
  local header = function(name) return response.headers[name] and response.headers[name][0] end
  local decision = header('x-ratelimit-decision')
  if not decision then return end
  txn:set_var('txn.limit', decision)
  if header('ratelimit') then txn:set_var('txn.limit_state', header('ratelimit')) end
  if header('retry-after') then txn:set_var('txn.limit_retry', header('retry-after')) end
end)
