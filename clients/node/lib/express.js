'use strict'

const { ForwardAuth } = require('./forward-auth')

/**
 * Middleware for Express, Connect and plain `node:http` handlers.
 *
 * `facts(request)` and `skip(request)` receive the Express request.
 */
function expressLimit (options) {
  const auth = new ForwardAuth(options)
  return async (request, response, next) => {
    let verdict = { headers: [] }
    try {
      if (!auth.skip?.(request)) {
        const target = request.originalUrl ?? request.url
        verdict = await auth.decide(request, target, auth.facts?.(request))
      }
    } catch (error) {
      return next(error)
    }
    for (const [name, value] of verdict.headers) response.appendHeader(name, value)
    if (!verdict.status) return next()
    response.statusCode = verdict.status
    response.end(verdict.body)
  }
}

module.exports = { expressLimit }
