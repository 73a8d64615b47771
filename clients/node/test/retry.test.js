'use strict'
// Retries of callers, in virtual time.

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { RetryBudget, parseRetryAfter, retryingFetch } = require('..')
const values = require('../../retry-after.json')

const NOW = Date.parse(values.now)
const refusal = (status, retryAfter) =>
  () => new Response('no', { status, headers: retryAfter ? { 'retry-after': retryAfter } : {} })

/** Gives these replies in turn; the last one stays. Sleeping moves the clock. */
function fakeServer (replies, { jitter = 1, ...options } = {}) {
  const server = { calls: 0, waits: [], bodies: [], time: 0 }
  server.fetch = retryingFetch({
    timeoutMs: 1e6,
    fetch: async request => {
      server.bodies.push(await request.text())
      return replies[Math.min(server.calls++, replies.length - 1)]()
    },
    sleep: async ms => { server.waits.push(ms); server.time += ms },
    clock: () => server.time,
    now: () => NOW + server.time,
    random: () => jitter,
    ...options
  })
  return server
}

test('Retry-After values are parsed as listed', () => {
  assert.ok(values.cases.length > 20)
  for (const { value, seconds } of values.cases) {
    assert.equal(parseRetryAfter(value, NOW), seconds === null ? null : seconds * 1000, value)
  }
  assert.equal(parseRetryAfter(null, NOW), null)
  assert.equal(parseRetryAfter(undefined, NOW), null)
})

test('waits as long as asked plus jitter', async () => {
  for (const retryAfter of ['30', 'Thu, 19 Nov 2026 12:00:30 GMT']) {
    const replies = [refusal(429, retryAfter), () => new Response('yes')]
    const server = fakeServer(replies, { jitter: 0.5 })
    assert.equal(await (await server.fetch('http://a/')).text(), 'yes')
    assert.deepEqual(server.waits, [30_050])
  }
})

test('backs off exponentially up to the cap', async () => {
  const server = fakeServer([refusal(503)], { attempts: 6, baseMs: 1000, capMs: 5000 })
  assert.equal((await server.fetch('http://a/')).status, 503)
  assert.deepEqual(server.waits, [1000, 2000, 4000, 5000, 5000])
})

test('jitter covers the whole back-off', async () => {
  const server = fakeServer([refusal(503)], { jitter: 0 })
  await server.fetch('http://a/')
  assert.deepEqual(server.waits, [0, 0, 0])
})

test('an invalid Retry-After backs off', async () => {
  const server = fakeServer([refusal(429, '-1'), () => new Response('yes')])
  await server.fetch('http://a/')
  assert.deepEqual(server.waits, [100])
})

test('a Retry-After above the ceiling is returned at once', async () => {
  for (const retryAfter of ['61', ...values.above_any_ceiling]) {
    const server = fakeServer([refusal(429, retryAfter)])
    assert.equal((await server.fetch('http://a/')).status, 429)
    assert.deepEqual([server.calls, server.waits], [1, []])
  }
})

test('the deadline is not exceeded', async () => {
  const server = fakeServer([refusal(429, '20')], { jitter: 0, timeoutMs: 50_000 })
  assert.equal((await server.fetch('http://a/')).status, 429)
  assert.deepEqual(server.waits, [20_000, 20_000])
})

test('an unsafe method is repeated only if that is allowed', async () => {
  const post = { method: 'POST', body: 'data' }
  const careful = fakeServer([refusal(429, '1')])
  assert.equal((await careful.fetch('http://a/', post)).status, 429)
  assert.equal(careful.calls, 1)
  const bold = fakeServer([refusal(429, '1')], { retryUnsafe: true })
  await bold.fetch('http://a/', post)
  assert.deepEqual(bold.bodies, ['data', 'data', 'data', 'data'])
})

test('final statuses are not repeated', async () => {
  for (const status of [200, 404, 500, 501]) {
    const server = fakeServer([refusal(status, '1')])
    assert.equal((await server.fetch('http://a/')).status, status)
    assert.equal(server.calls, 1)
  }
})

test('a network error is repeated, then thrown', async () => {
  const server = fakeServer([() => { throw new TypeError('fetch failed') }], { attempts: 2 })
  await assert.rejects(server.fetch('http://a/'), /fetch failed/)
  assert.equal(server.calls, 2)
})

test('an aborted call is not repeated', async () => {
  const controller = new AbortController()
  const reply = () => { controller.abort(); throw controller.signal.reason }
  const server = fakeServer([reply])
  await assert.rejects(server.fetch('http://a/', { signal: controller.signal }), /abort/i)
  assert.equal(server.calls, 1)
})

test('the budget limits the retries of all calls', async () => {
  const budget = new RetryBudget({ ratio: 0.1, reserve: 10 })
  const server = fakeServer([refusal(503)], { attempts: 2, budget })
  for (let i = 0; i < 1000; i++) await server.fetch('http://a/')
  const retries = server.calls - 1000 // the reserve, and a tenth of the calls
  assert.ok(retries >= 105 && retries <= 111, String(retries))
})
