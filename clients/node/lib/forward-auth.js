'use strict'
// Asks Tidegate about a request. The middleware describes the request to `/v1/forward-auth` in
// headers. The server knows the rules, finds the identity of the client and decides. Nothing here
// counts requests.

const http = require('node:http')

const FACT_PREFIX = 'tidegate-fact-'
// Headers of one connection, and headers that describe the request to the server: only this
// middleware may write those. `Connection` may name further headers, but these are forwarded:
// otherwise a client could hide its API key from the server.
const NOT_FORWARDED = [
  'connection', 'content-length', 'expect', 'forwarded', 'host', 'keep-alive', 'proxy-connection',
  'te', 'trailer', 'transfer-encoding', 'upgrade', 'x-forwarded-for', 'x-forwarded-host',
  'x-forwarded-method', 'x-forwarded-uri', 'x-original-method', 'x-original-uri',
  'x-original-url', 'x-real-ip'
]
const NOT_RETURNED = new Set(
  ['connection', 'date', 'keep-alive', 'transfer-encoding', 'x-ratelimit-decision'])
const LIMIT_HEADERS = /^(x-ratelimit-|ratelimit|access-control-expose-headers$)/
// What the server accepts: 100 headers, and a head of 32 KiB.
const MAX_HEADERS = 100
const MAX_HEAD_BYTES = 31 * 1024
const UNAVAILABLE =
  '{"error":"rate_limiter_unavailable","message":"The rate limiter is unavailable."}'

/** A refusal that does not come from the server. */
function refuse (status, body = '') {
  const length = String(Buffer.byteLength(body))
  const headers = [['content-length', length], ['cache-control', 'no-store']]
  if (body) headers.push(['content-type', 'application/json'])
  return { status, headers, body }
}

/** Stops asking a server that is down: after three failures, one request per second asks. */
class Breaker {
  static FAILURES = 3
  static PAUSE_MS = 1000
  #failures = 0
  #askAt = null

  constructor (server, onFail, now, log) {
    Object.assign(this, { server, onFail, now, log })
  }

  admits () {
    if (this.#askAt === null) return true
    if (this.now() < this.#askAt) return false
    this.#askAt = this.now() + Breaker.PAUSE_MS
    return true
  }

  recordSuccess () {
    if (this.#askAt !== null) {
      this.log(`tidegate at ${this.server} answers again; its limits apply`)
    }
    this.#failures = 0
    this.#askAt = null
  }

  recordFailure (error) {
    this.#failures += 1
    if (this.#askAt !== null || this.#failures < Breaker.FAILURES) return
    this.#askAt = this.now() + Breaker.PAUSE_MS
    const action = this.onFail === 'allow' ? 'pass without limits' : 'get 503'
    this.log(`tidegate at ${this.server} does not answer (${error.message || error.code}); ` +
      `until it does, requests ${action}`)
  }
}

class ForwardAuth {
  #agent = new http.Agent({ keepAlive: true, maxFreeSockets: 32 })
  #dropped

  constructor ({
    url = 'http://127.0.0.1:8081', deadlineMs = 50, onFail = 'allow', facts, skip,
    dropHeaders = [], log = console.warn, now = () => performance.now(), ...unknown
  } = {}) {
    this.server = new URL(url)
    if (this.server.protocol !== 'http:' || this.server.pathname !== '/' || this.server.search) {
      throw new TypeError(`url: write http://HOST:PORT of Tidegate's HTTP API, not ${url}`)
    }
    if (!['allow', 'deny'].includes(onFail)) {
      throw new TypeError(`onFail: write 'allow' or 'deny', not ${onFail}`)
    }
    if (!(deadlineMs > 0)) {
      throw new TypeError(`deadlineMs: write milliseconds above 0, not ${deadlineMs}`)
    }
    if (Object.keys(unknown).length > 0) {
      throw new TypeError(`unknown options: ${Object.keys(unknown).join(', ')}`)
    }
    Object.assign(this, { deadlineMs, facts, skip })
    this.breaker = new Breaker(this.server.host, onFail, now, log)
    this.fallback = onFail === 'allow' ? { headers: [] } : refuse(503, UNAVAILABLE)
    this.#dropped = new Set([...NOT_FORWARDED, ...dropHeaders.map(name => name.toLowerCase())])
  }

  /**
   * Decides a `node:http` request. Without a `status` in the result, the application handles the
   * request. `target` is the path as the client sent it.
   */
  async decide (incoming, target, facts = {}) {
    const question = this.encodeQuestion(incoming, target, facts)
    if (question.status) return question
    if (!this.breaker.admits()) return this.fallback
    try {
      const verdict = readVerdict(await this.#ask(question))
      this.breaker.recordSuccess()
      return verdict
    } catch (error) {
      this.breaker.recordFailure(error)
      return this.fallback
    }
  }

  /** The headers for the server, or the refusal of a request that the server cannot read. */
  encodeQuestion ({ method, rawHeaders, headers, socket }, target, facts) {
    const encode = char => '%' + char.charCodeAt(0).toString(16).toUpperCase()
    const uri = target.replace(/[\x80-\xff]/g, encode)
    const question = ['host', this.server.host]
    question.push('x-forwarded-method', method, 'x-forwarded-uri', uri)
    const host = headers.host ?? headers[':authority']
    if (host) question.push('x-forwarded-host', host)
    const hops = [headers['x-forwarded-for'], socket.remoteAddress].filter(Boolean)
    if (hops.length) question.push('x-forwarded-for', hops.join(', '))
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const name = rawHeaders[i].toLowerCase()
      if (name.startsWith(':')) continue // a pseudo-header of HTTP/2
      if (!this.#dropped.has(name) && !name.startsWith(FACT_PREFIX)) {
        question.push(name, rawHeaders[i + 1])
      }
    }
    for (const [name, value] of Object.entries(facts)) {
      if (value === undefined || value === null) continue
      const bytes = Buffer.from(String(value), 'utf8').toString('latin1')
      question.push(FACT_PREFIX + name.replaceAll('_', '-'), bytes)
    }
    try {
      for (let i = 0; i < question.length; i += 2) {
        http.validateHeaderName(question[i])
        http.validateHeaderValue(question[i], question[i + 1])
      }
    } catch {
      return refuse(400)
    }
    // The server would close the connection, which must not look like an outage.
    const bytes = question.reduce((sum, part) => sum + part.length + 2, 100)
    const tooLong = question.length >= 2 * MAX_HEADERS || bytes > MAX_HEAD_BYTES
    return tooLong ? refuse(431) : question
  }

  /** Sends the question and returns the whole answer, within the deadline. */
  #ask (headers) {
    return new Promise((resolve, reject) => {
      let request
      // Destroys the connection, too: the late answer must not reach the next request.
      const onDeadline = () => request.destroy(new Error(`no answer in ${this.deadlineMs} ms`))
      const timer = setTimeout(onDeadline, this.deadlineMs)
      const finish = (settle, value) => { clearTimeout(timer); settle(value) }
      const send = () => {
        const { hostname, port } = this.server
        const options = { port, path: '/v1/forward-auth', headers, agent: this.#agent }
        request = http.request({ ...options, hostname: hostname.replace(/^\[|\]$/g, '') })
        let answered = false
        request.on('response', response => {
          answered = true
          const chunks = []
          response.on('data', chunk => chunks.push(chunk))
          response.on('error', error => finish(reject, error))
          response.on('end', () => {
            const { statusCode, rawHeaders } = response
            finish(resolve, { statusCode, rawHeaders, body: Buffer.concat(chunks) })
          })
        })
        request.on('error', error => {
          // The server may close an idle connection at any time.
          const closed = ['ECONNRESET', 'EPIPE'].includes(error.code)
          if (closed && request.reusedSocket && !answered) send()
          else finish(reject, error)
        })
        request.end()
      }
      send()
    })
  }
}

/** The server's decision; fails if the answer contains none. */
function readVerdict ({ statusCode, rawHeaders, body }) {
  const pairs = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    pairs.push([rawHeaders[i].toLowerCase(), rawHeaders[i + 1]])
  }
  const decision = pairs.find(([name]) => name === 'x-ratelimit-decision')?.[1]
  const headers = pairs.filter(([name]) => !NOT_RETURNED.has(name))
  if (decision === 'allow') {
    return { headers: headers.filter(([name]) => LIMIT_HEADERS.test(name)) }
  }
  // Without a decision: the request is ambiguous, for instance has two API keys (400), or is too
  // long (431).
  if (decision === 'deny' || [400, 431].includes(statusCode)) {
    return { status: statusCode, headers, body }
  }
  throw new Error(`it answers with status ${statusCode}: ${body.toString().slice(0, 300)}`)
}

module.exports = { ForwardAuth, Breaker }
