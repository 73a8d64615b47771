// What two ticks say together: counts only grow, so rates and shares are their differences.

/** What happened between two ticks: a second, or more where one was missed. */
export function between(before, after) {
  const seconds = Math.max((after.at_us - before.at_us) / 1e6, 0.001);
  return { at_us: after.at_us, seconds, ...decisions(before.counts, after.counts, seconds), rules: rules(before.counts, after.counts) };
}

function decisions(before, after, seconds) {
  const of = (counts, outcome) => sum(counts.decisions, (one) => (one.outcome === outcome ? one.count : 0));
  const by = (counts, who) => sum(counts.decisions, (one) => (one.answered_by === who ? one.count : 0));
  const grown = (outcome) => Math.max(of(after, outcome) - of(before, outcome), 0);
  const said = (verdict) => Math.max(total(after, verdict) - total(before, verdict), 0);
  const allowed = grown("allowed");
  const refused = grown("refused");
  // A request counts once: by the hardest thing that was said to it, as far as rules' counts tell.
  const ban = Math.min(said("ban"), refused);
  const warn = Math.min(said("warn"), allowed);
  const shadow = Math.min(said("shadow_deny"), allowed - warn);
  const bands = { allow: allowed - warn - shadow, shadow, warn, deny: refused - ban, ban };
  for (const name of Object.keys(bands)) bands[name] /= seconds;
  return {
    bands,
    allowed,
    refused,
    fallback: Math.max(by(after, "fallback") - by(before, "fallback"), 0),
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

/** The value below which a share lies, of a distribution in classes; within a class as if spread evenly. */
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
