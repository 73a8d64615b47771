'use strict'

const fastify = require('fastify')
const { fastifyLimit } = require('..')
const { listeners, limitOptions } = require('./settings')

for (const listener of listeners) {
  const app = fastify()
  app.register(fastifyLimit, limitOptions(listener))
  app.all('/*', async (request, reply) => reply.header('x-handled', 'yes').send('handled'))
  app.listen({ port: listener.port, host: '127.0.0.1' })
}
