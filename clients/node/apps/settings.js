'use strict'
// What the applications of the conformance tests share; see ../../README.md.

const settings = JSON.parse(process.argv[2])

/** The options of the middleware for one listener; `headers` and `path` read a request. */
function limitOptions (listener) {
  return {
    url: settings.tidegate,
    deadlineMs: listener.deadline_ms,
    onFail: listener.on_fail,
    facts: ({ headers }) => ({ user_id: headers['x-session'], cost: headers['x-points'] }),
    skip: ({ url }) => url === '/skipped'
  }
}

module.exports = { listeners: settings.listeners, limitOptions }
