// What was heard: the last ticks, what happened between them, and the last violations. Pages watch it.

import { between } from "/dashboard/js/counts.js";

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
  if (name === "tick") tick(data);
  if (name === "violations") {
    violations = [...data.list].reverse().concat(violations).slice(0, VIOLATIONS);
    skipped += data.skipped;
  }
  for (const watcher of watchers) watcher();
}

function tick(now) {
  // Another process, or the same one started anew: what it counts has begun again.
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
