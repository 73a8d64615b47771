'use strict'
// Retries for outbound calls: waits as long as the server asks, or backs off with full jitter.

const timers = require('node:timers/promises')

const IDEMPOTENT_METHODS = new Set(['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PUT', 'TRACE'])
const RETRIED_STATUSES = new Set([429, 502, 503, 504])
const HTTP_DATE = /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/

/** Milliseconds to wait after `now` (Unix time in milliseconds); `null` for an invalid value. */
function parseRetryAfter (value, now) {
  const text = (value ?? '').replace(/^[ \t]+|[ \t]+$/g, '')
  if (/^[0-9]+$/.test(text)) return Number(text) * 1000
  const at = HTTP_DATE.test(text) ? Date.parse(text) : NaN
  return Number.isNaN(at) ? null : Math.max(0, at - now)
}

/** Limits retries to a share of the calls, so that retries do not multiply an overload. */
class RetryBudget {
  #ratio
  #reserve
  #tokens

  constructor ({ ratio = 0.1, reserve = 10 } = {}) {
    this.#ratio = ratio
    this.#reserve = this.#tokens = reserve
  }

  /** Counts a first attempt. */
  deposit () {
    this.#tokens = Math.min(this.#reserve, this.#tokens + this.#ratio)
  }

  /** Takes one retry from the budget, if there is one. */
  withdraw () {
    const allowed = this.#tokens >= 1
    if (allowed) this.#tokens -= 1
    return allowed
  }
}

/**
 * Returns a function like `fetch`. Share one per server: its calls share a retry budget.
 *
 * A call is repeated only if its method is idempotent (or `retryUnsafe` is set), after 429, 502,
 * 503, 504 or a network error. `timeoutMs` covers all attempts and waits of a call together. A
 * `Retry-After` above `maxWaitMs` is not waited for: the caller gets the response at once.
 */
function retryingFetch ({
  attempts = 4, baseMs = 100, capMs = 10_000, maxWaitMs = 60_000, timeoutMs = 30_000,
  retryUnsafe = false, budget = new RetryBudget(), fetch = globalThis.fetch, random = Math.random,
  sleep = (ms, signal) => timers.setTimeout(ms, undefined, { signal }),
  clock = () => performance.now(), now = Date.now
} = {}) {
  /** Milliseconds to wait after this attempt; `null` if its response is final. */
  function waitBeforeRetry (attempt, response) {
    if (response && !RETRIED_STATUSES.has(response.status)) return null
    // Full jitter: clients that were refused together do not retry together.
    const jitter = random() * Math.min(capMs, baseMs * 2 ** (attempt - 1))
    const asked = parseRetryAfter(response?.headers.get('retry-after'), now())
    if (asked === null) return jitter
    return asked <= maxWaitMs ? asked + jitter : null
  }

  return async (input, init) => {
    const original = new Request(input, init)
    const signal = AbortSignal.any([original.signal, AbortSignal.timeout(timeoutMs)])
    const mayRepeat = retryUnsafe || IDEMPOTENT_METHODS.has(original.method)
    const expiresAt = clock() + timeoutMs
    budget.deposit()
    for (let attempt = 1; ; attempt++) {
      let response, failure
      try {
        response = await fetch(mayRepeat ? original.clone() : original, { signal })
      } catch (error) {
        failure = error
      }
      const wait = waitBeforeRetry(attempt, response)
      if (!mayRepeat || attempt >= attempts || wait === null || signal.aborted ||
          clock() + wait >= expiresAt || !budget.withdraw()) {
        if (failure) throw failure
        return response
      }
      await response?.body?.cancel()
      await sleep(wait, signal)
    }
  }
}

module.exports = { retryingFetch, RetryBudget, parseRetryAfter }
