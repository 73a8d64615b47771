// Keeps what the server sent: its last two minutes, then a tick every second, and the latest
// violations. Pages subscribe with `watch`.

import { between, recorded } from "/dashboard/js/counts.js";

/** The number of seconds, and of violations, that are kept. */
export const SECONDS = 120;
const VIOLATIONS = 60;

const watchers = new Set();
let last = null;
let steps = [];
let violations = [];
let skipped = 0;

/** Handles one event from the server. */
export function handleEvent(name, data) {
  if (name === "history") start(data);
  if (name === "tick") tick(data);
  if (name === "violations") {
    violations = [...data.list].reverse().concat(violations).slice(0, VIOLATIONS);
    skipped += data.skipped;
  }
  for (const watcher of watchers) watcher();
}

/** Handles the history at the start of a connection. It also fills gaps after a lost connection. */
function start({ steps: list, duration_bounds_us: bounds }) {
  steps = list.map((step) => recorded(step, bounds)).slice(-SECONDS);
  last = null;
}

function tick(now) {
  // After a restart of the server, counts start from zero.
  if (last && (last.process.pid !== now.process.pid || now.at_us <= last.at_us)) {
    if (last.process.pid !== now.process.pid) steps = [];
    last = null;
  }
  if (last) steps = [...steps, between(last, now)].slice(-SECONDS);
  last = now;
}

/** Calls `watcher` now and after every event. Returns a function that unsubscribes. */
export function watch(watcher) {
  watchers.add(watcher);
  watcher();
  return () => watchers.delete(watcher);
}

/** The newest tick, or null. */
export const newest = () => last;
/** The steps of the last seconds, oldest first. */
export const past = () => steps;
/** The latest violations, newest first, and the number of those that the server left out. */
export const refused = () => ({ list: violations, skipped });
