'use strict'

const { expressLimit } = require('./express')
const { fastifyLimit } = require('./fastify')
const { RetryBudget, parseRetryAfter, retryingFetch } = require('./retry')

module.exports = { expressLimit, fastifyLimit, retryingFetch, RetryBudget, parseRetryAfter }
