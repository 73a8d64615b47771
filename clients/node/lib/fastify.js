'use strict'

const { ForwardAuth } = require('./forward-auth')

/**
 * Plugin for Fastify: `app.register(fastifyLimit, options)`.
 *
 * `facts(request)` and `skip(request)` receive the Fastify request.
 */
async function fastifyLimit (app, options) {
  const auth = new ForwardAuth(options)
  app.addHook('onRequest', async (request, reply) => {
    if (auth.skip?.(request)) return
    const verdict = await auth.decide(request.raw, request.raw.url, auth.facts?.(request))
    for (const [name, value] of verdict.headers) reply.header(name, value)
    if (verdict.status) return reply.code(verdict.status).send(Buffer.from(verdict.body))
  })
}

// The limits apply to the whole application, not only to the plugin's own routes.
fastifyLimit[Symbol.for('skip-override')] = true

module.exports = { fastifyLimit }
