// What the server sent: its last minutes, then a tick each second, and the last violations. Pages watch it.

import { between, recorded } from "/dashboard/js/counts.js";

/** How many seconds are kept, and how many violations. */
export const SECONDS = 120;
const VIOLATIONS = 60;

const watchers = new Set();
let last = null;
let steps = [];
let violations = [];
let skipped = 0;

/** Hears of an event of the server. */
export function hear(name, data) {
  if (name === "history") start(data);
  if (name === "tick") tick(data);
  if (name === "violations") {
    violations = [...data.list].reverse().concat(violations).slice(0, VIOLATIONS);
    skipped += data.skipped;
  }
  for (const watcher of watchers) watcher();
}

/** A connection starts with the server's last minutes, which also fill what a lost one has missed. */
function start({ steps: list, duration_bounds_us: bounds }) {
  steps = list.map((step) => recorded(step, bounds)).slice(-SECONDS);
  last = null;
}

function tick(now) {
  // Another process: its counts have started again.
  if (last && (last.process.pid !== now.process.pid || now.at_us <= last.at_us)) {
    if (last.process.pid !== now.process.pid) steps = [];
    last = null;
  }
  if (last) steps = [...steps, between(last, now)].slice(-SECONDS);
  last = now;
}

/** Calls `watcher` now and after every event; gives back what ends that. */
export function watch(watcher) {
  watchers.add(watcher);
  watcher();
  return () => watchers.delete(watcher);
}

/** The newest tick, or null. */
export const newest = () => last;
/** What happened in each of the last seconds, oldest first. */
export const past = () => steps;
/** The last violations, newest first, and how many more there were. */
export const refused = () => ({ list: violations, skipped });
