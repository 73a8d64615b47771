'use strict'

const express = require('express')
const { expressLimit } = require('..')
const { listeners, limitOptions } = require('./settings')

for (const listener of listeners) {
  const app = express()
  app.use(expressLimit(limitOptions(listener)))
  app.use((request, response) => response.set('x-handled', 'yes').send('handled'))
  app.listen(listener.port, '127.0.0.1')
}
