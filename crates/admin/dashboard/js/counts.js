// Computes rates and shares from the difference of two ticks; the server's counts only grow.

/** The step between two ticks: one second, or more if a tick was missed. */
export function between(before, after) {
  const seconds = Math.max((after.at_us - before.at_us) / 1e6, 0.001);
  return { at_us: after.at_us, seconds, ...decisions(before.counts, after.counts, seconds), rules: rules(before.counts, after.counts) };
}

/** A step from the server's history. A rule that is missing in it was idle. */
export function recorded(step, bounds) {
  const seconds = Math.max(step.span_us / 1e6, 0.001);
  return {
    at_us: step.at_us,
    seconds,
    bands: bands(step.allowed, step.refused, step.verdicts, seconds),
    allowed: step.allowed,
    refused: step.refused,
    fallback: step.fallback,
    local: step.local,
    durations: step.durations,
    bounds,
    rules: new Map(step.rules.map((rule) => [rule.id, rule])),
    idle: step.rules.length < RULES_PER_STEP ? IDLE : undefined,
  };
}

/** What answers without asking the store, while it is available. */
const LOCAL = ["lease", "async", "borrowed", "deny_cache"];

/** The most rules that the server lists in a step. With a full list, other rules are unknown. */
const RULES_PER_STEP = 64;
const IDLE = { verdicts: { allow: 0, deny: 0, shadow_deny: 0, warn: 0, ban: 0 }, headroom: [], left: 0 };

/** Requests per second by verdict. Each request counts once, by its most severe verdict. This is an
 * estimate, because the verdicts are counted per rule. */
function bands(allowed, refused, verdicts, seconds) {
  const ban = Math.min(verdicts.ban, refused);
  const warn = Math.min(verdicts.warn, allowed);
  const shadow = Math.min(verdicts.shadow_deny, allowed - warn);
  const counts = { allow: allowed - warn - shadow, shadow, warn, deny: refused - ban, ban };
  return Object.fromEntries(Object.entries(counts).map(([name, number]) => [name, number / seconds]));
}

function decisions(before, after, seconds) {
  const of = (counts, outcome) => sum(counts.decisions, (one) => (one.outcome === outcome ? one.count : 0));
  const by = (counts, sources) => sum(counts.decisions, (one) => (sources.includes(one.answered_by) ? one.count : 0));
  const grownBy = (...sources) => Math.max(by(after, sources) - by(before, sources), 0);
  const grown = (outcome) => Math.max(of(after, outcome) - of(before, outcome), 0);
  const grownVerdict = (verdict) => Math.max(total(after, verdict) - total(before, verdict), 0);
  const allowed = grown("allowed");
  const refused = grown("refused");
  const verdicts = { ban: grownVerdict("ban"), warn: grownVerdict("warn"), shadow_deny: grownVerdict("shadow_deny") };
  return {
    bands: bands(allowed, refused, verdicts, seconds),
    allowed,
    refused,
    fallback: grownBy("fallback"),
    local: grownBy(...LOCAL),
    durations: grownClasses(before.duration_us, after.duration_us),
    bounds: after.duration_us.bounds,
  };
}

const total = (counts, verdict) => sum(counts.rules, (rule) => rule.verdicts[verdict]);
const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);

function rules(before, after) {
  const known = new Map(before.rules.map((rule) => [rule.id, rule]));
  const grown = new Map();
  for (const rule of after.rules) {
    const was = known.get(rule.id) ?? rule;
    const verdicts = {};
    for (const [name, number] of Object.entries(rule.verdicts)) {
      verdicts[name] = Math.max(number - was.verdicts[name], 0);
    }
    const headroom = grownClasses(was.headroom_percent, rule.headroom_percent);
    const left = Math.max(rule.headroom_percent.sum - was.headroom_percent.sum, 0);
    grown.set(rule.id, { verdicts, headroom, left });
  }
  return grown;
}

function grownClasses(before, after) {
  return after.counts.map((number, at) => Math.max(number - before.counts[at], 0));
}

/** A quantile of a histogram, interpolated linearly within a bucket. */
export function quantile(bounds, counts, share) {
  const all = sum(counts, (number) => number);
  if (all === 0) return null;
  let below = 0;
  for (const [at, number] of counts.entries()) {
    if (number > 0 && below + number >= share * all) {
      const from = at === 0 ? 0 : bounds[at - 1];
      const to = at < bounds.length ? bounds[at] : bounds[at - 1] * 2;
      return from + ((share * all - below) / number) * (to - from);
    }
    below += number;
  }
  return bounds.at(-1);
}
