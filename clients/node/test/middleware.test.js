'use strict'
// What the tests on real sockets do not show: the breaker, the options and the question.

const assert = require('node:assert/strict')
const http = require('node:http')
const net = require('node:net')
const { test } = require('node:test')

const { Breaker, ForwardAuth } = require('../lib/forward-auth')
const { expressLimit } = require('..')

test('the breaker opens after three failures and asks once per second', () => {
  let time = 100
  const lines = []
  const breaker = new Breaker('t:1', 'deny', () => time, line => lines.push(line))
  const fail = () => breaker.recordFailure(new Error('refused'))
  fail()
  fail()
  breaker.recordSuccess()
  fail()
  fail()
  assert.equal(breaker.admits(), true)
  fail()
  assert.equal(breaker.admits(), false)
  fail()
  time += 1000
  assert.deepEqual([breaker.admits(), breaker.admits()], [true, false])
  time += 1000
  assert.equal(breaker.admits(), true)
  breaker.recordSuccess()
  assert.equal(breaker.admits(), true)
  assert.deepEqual(lines, [
    'tidegate at t:1 does not answer (refused); until it does, requests get 503',
    'tidegate at t:1 answers again; its limits apply'
  ])
})

function encode ({ target = '/', rawHeaders = [], facts = {}, ...options }) {
  const auth = new ForwardAuth({ url: 'http://t:1', ...options })
  const socket = { remoteAddress: '192.0.2.1' }
  return auth.encodeQuestion({ method: 'GET', rawHeaders, headers: {}, socket }, target, facts)
}

test('facts replace headers of the client', () => {
  const rawHeaders = ['Tidegate-Fact-User-Id', 'forged', 'tidegate-fact-tier', 'paid']
  const question = encode({ rawHeaders, facts: { user_id: 'zoé', plan: undefined } })
  const value = question[question.indexOf('tidegate-fact-user-id') + 1]
  assert.equal(Buffer.from(value, 'latin1').toString(), 'zoé')
  assert.ok(!/forged|tier|plan/.test(question.join()), question.join())
})

test('pseudo-headers of HTTP/2 are not sent', () => {
  const auth = new ForwardAuth()
  const rawHeaders = [':method', 'GET', ':authority', 'a.example', 'x-api-key', 'k']
  const request = { method: 'GET', rawHeaders, headers: { ':authority': 'a.example' }, socket: {} }
  const question = auth.encodeQuestion(request, '/', {})
  assert.deepEqual(question.slice(6), ['x-forwarded-host', 'a.example', 'x-api-key', 'k'])
})

test('line breaks in facts are bad requests', () => {
  for (const value of ['a\r\nx-api-key: b', 'a\nb', 'a\0b']) {
    assert.equal(encode({ facts: { user_id: value } }).status, 400)
  }
})

test('a non-ASCII target is encoded', () => {
  const target = Buffer.from('/é?%zz="<').toString('latin1')
  assert.ok(encode({ target }).includes('/%C3%A9?%zz="<'))
})

test('dropped headers are not sent', () => {
  const question = encode({ rawHeaders: ['X-User', 'ana', 'X-O', 'k'], dropHeaders: ['x-user'] })
  assert.ok(!question.includes('ana') && question.includes('k'))
})

test('too long heads are refused', () => {
  assert.equal(encode({ rawHeaders: ['x', 'a'.repeat(32_000)] }).status, 431)
  assert.equal(encode({ rawHeaders: Array(97).fill(['x', 'a']).flat() }).status, 431)
  assert.ok(Array.isArray(encode({ rawHeaders: Array(90).fill(['x', 'a']).flat() })))
})

test('invalid options are errors', () => {
  for (const options of [
    { url: 'https://a' }, { url: 'http://a/b' }, { onFail: 'open' }, { deadlineMs: 0 }, { onfail: 1 }
  ]) {
    assert.throws(() => new ForwardAuth(options), TypeError)
  }
})

test('an error of a callback reaches the application', async () => {
  const facts = () => { throw new Error('no session') }
  const handler = expressLimit({ url: 'http://127.0.0.1:1', facts })
  const request = new http.IncomingMessage(null)
  const error = await new Promise(resolve => handler(request, null, resolve))
  assert.equal(error.message, 'no session')
})

test('a connection that the server closes is replaced', async t => {
  // Answers the first question on each connection, and closes it at the second.
  const answer = 'HTTP/1.1 200 OK\r\nx-ratelimit-decision: allow\r\ncontent-length: 0\r\n\r\n'
  const connections = []
  const server = net.createServer(socket => {
    connections.push(socket)
    socket.once('data', () => {
      socket.write(answer)
      socket.once('data', () => socket.destroy())
    })
  })
  t.after(() => {
    server.close()
    connections.forEach(socket => socket.destroy())
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  const log = line => assert.fail(line)
  const url = `http://127.0.0.1:${server.address().port}`
  const auth = new ForwardAuth({ url, onFail: 'deny', deadlineMs: 10_000, log })
  const request = { method: 'GET', rawHeaders: [], headers: {}, socket: {} }
  for (let i = 0; i < 4; i++) {
    assert.deepEqual(await auth.decide(request, '/'), { headers: [] })
  }
  assert.equal(connections.length, 4)
})
