// The rows of the rules table: each rule's decisions in the last minute, its usage and its bound.
// Rows are created once and then updated in place, so that the table does not flicker.

import { h, label, say, untrusted } from "/dashboard/js/dom.js";
import { count, keys, percent, rate, units } from "/dashboard/js/format.js";
import { spark } from "/dashboard/js/chart/spark.js";

const MINUTE = 60;
const REFUSALS = ["deny", "ban", "shadow_deny"];

/** The body of the table; `update(tick, steps)` refreshes it. */
export function ruleRows(heads) {
  const body = h("tbody");
  const rows = new Map();
  const update = ({ counts: { rules }, process }, steps) => {
    if (rules.length === 0) {
      body.replaceChildren(h("tr", null, h("td", { colspan: 9, class: "empty" }, "No rules are active, so every request is allowed. Write some on the page ", h("a", { href: "#/edit" }, "Edit"), ".")));
      rows.clear();
      return;
    }
    const ids = rules.map((rule) => rule.id);
    if ([...rows.keys()].join("\n") !== ids.join("\n")) {
      rows.clear();
      rules.forEach((rule) => rows.set(rule.id, row(rule)));
      body.replaceChildren(...[...rows.values()].map((one) => one.element));
      label(body, heads);
    }
    const minute = steps.slice(-MINUTE);
    rules.forEach((rule) => rows.get(rule.id).update(rule, minute, process));
  };
  return { body, update };
}

function row(rule) {
  const drawn = spark();
  const [mode, counted, held, requests, refused, high, most] = ["span", "span", "small", "td", "td", "td", "td"].map((name) => h(name, { class: name === "td" ? "number" : null }));
  const used = h("i");
  const gauge = h("span", { class: "gauge", "aria-hidden": "true" }, used);
  const share = h("span");
  const element = h("tr", null,
    h("th", { scope: "row", class: "rule-name" }, untrusted(rule.id), h("small", null, untrusted(rule.endpoint === "*" ? "every endpoint" : rule.endpoint))),
    h("td", null, mode), h("td", { class: "counted" }, counted, held), requests, refused, h("td", null, drawn.svg), h("td", { class: "wide" }, gauge, share), high, most);
  const update = (now, minute, process) => {
    const steps = minute.map((step) => ({ step, rule: step.rules.get(now.id) ?? step.idle })).filter((one) => one.rule);
    const seconds = steps.reduce((all, one) => all + one.step.seconds, 0) || 1;
    const list = steps.map(({ step, rule: one }) => ({ all: total(one.verdicts) / step.seconds, refused: refusals(one.verdicts) / step.seconds }));
    const sum = (of) => steps.reduce((all, one) => all + of(one.rule), 0);
    const read = sum((one) => one.headroom.reduce((all, number) => all + number, 0));
    const left = read ? sum((one) => one.left) / read / 100 : null;
    drawn.update(list);
    const state = now.is_active === false ? "disabled" : now.mode;
    mode.className = `badge is-${{ enforce: "allow", shadow: "shadow", warn: "warn", disabled: "off" }[state]}`;
    element.classList.toggle("is-disabled", state === "disabled");
    say(mode, state);
    say(counted, now.max_in_window === null ? "–" : now.consistency);
    say(held, now.max_in_window === null ? "" : holding(now, process));
    say(requests, rate(sum((one) => total(one.verdicts)) / seconds));
    say(refused, rate(sum((one) => refusals(one.verdicts)) / seconds));
    say(share, left === null ? "–" : percent(1 - left));
    used.style.width = `${left === null ? 0 : Math.round((1 - left) * 100)}%`;
    gauge.classList.toggle("is-high", left !== null && left < 0.1);
    say(high, read ? percent(sum((one) => scarce(one.headroom, now.headroom_percent.bounds)) / read) : "–");
    say(most, now.max_in_window === null ? "–" : count(now.max_in_window));
  };
  return { element, update };
}

/** What this node holds of a rule's counters, in a few words. */
function holding(rule, { servers, holdings }) {
  if (!servers) return "one process";
  const held = holdings?.rules[rule.id];
  if (!held) return "";
  return `${keys(held.counters)}, ${rule.consistency === "leased" ? units(held.units) : `${count(held.units)} open`}`;
}

const total = (verdicts) => Object.values(verdicts).reduce((all, one) => all + one, 0);
const refusals = (verdicts) => REFUSALS.reduce((all, name) => all + verdicts[name], 0);
const scarce = (counts, bounds) => counts.reduce((all, number, at) => all + (at < bounds.length && bounds[at] <= 10 ? number : 0), 0);
