// The overview: decision rate and time, activity of each rule, current violations, and the state of
// the node.

import { call } from "/dashboard/js/api.js";
import { fill, h, say, table, untrusted, visible } from "/dashboard/js/dom.js";
import { bytes, clock, count, date, keys, micros, percent, rate, units } from "/dashboard/js/format.js";
import { clientLink, nameOf, namesByKey } from "/dashboard/js/identity.js";
import { newest, past, refused, SECONDS, watch } from "/dashboard/js/history.js";
import { latency, quantiles } from "/dashboard/js/chart/line.js";
import { stack } from "/dashboard/js/chart/stack.js";
import { outcome } from "/dashboard/js/page/client_tables.js";
import { ruleRows } from "/dashboard/js/page/rule_rows.js";

const HEADS = ["Rule", "Mode", "Counted", { text: "Requests/s", class: "number" }, { text: "Refused/s", class: "number" }, "Last minute",
  "Used, on average", { text: "Nearly used up", class: "number" }, { text: "Most in a window", class: "number" }];

/** Shows the page. */
export function show(main) {
  const tiles = h("dl", { class: "tiles" });
  const decisions = stack(SECONDS);
  const durations = latency(SECONDS);
  const rows = ruleRows(HEADS);
  const rules = h("div");
  const feed = h("ol", { class: "feed", tabindex: "0", "aria-label": "Violations, newest first" });
  const more = h("p", { class: "hint" });
  const state = h("dl", { class: "facts" });
  const quiet = h("div", { class: "card empty", id: "quiet" });
  const warnings = h("ul", { id: "warnings", "aria-label": "Warnings", hidden: "" });
  fill(main,
    h("h1", { class: "visually-hidden" }, "Overview"),
    h("div", { class: "stack overview" },
      warnings, tiles, quiet,
      h("div", { class: "two" },
        h("section", { class: "card" }, h("h2", null, "Decisions a second"), decisions.place),
        h("section", { class: "card" }, h("h2", null, "Decision time"), durations.place)),
      h("section", { class: "card" }, h("h2", null, "Rules"), rules, explanations()),
      h("div", { class: "two" },
        h("section", { class: "card" }, h("header", null, h("h2", null, "Refused now"), more), feed),
        h("section", { class: "card" }, h("h2", null, "This node"), state))));
  fill(rules, table("Rules and what they do", HEADS, rows.body));
  let latest = null;
  let names = new Map();
  const refresh = async () => {
    // Poll the latest saved version and the other nodes; live events cover only this node.
    latest = await call("GET", "/v1/status").then(({ body }) => body, () => null);
    names = await call("GET", "/v1/top?limit=100").then(({ body }) => namesByKey(body.top), () => names);
  };
  refresh();
  const timer = setInterval(refresh, 10000);
  let drawn = null;
  const seen = watch(() => {
    const now = newest();
    const steps = past();
    showRefusals(feed, more, names);
    // Violations arrive several times per second; everything else changes only with a tick.
    if (!now || now === drawn) return;
    drawn = now;
    showWarnings(warnings, now.process.status);
    showTiles(tiles, now, steps);
    quiet.hidden = now.counts.decisions.some((one) => one.count > 0);
    if (!quiet.hidden && !quiet.firstChild) fill(quiet, gettingStarted());
    decisions.update(steps);
    durations.update(steps);
    rows.update(now, steps);
    showState(state, now, latest);
  });
  return () => [seen, decisions.ended, durations.ended, () => clearInterval(timer)].forEach((end) => end());
}

/** Explains the less obvious columns. */
function explanations() {
  const meaning = [
    ["Counted", "exact: the store decides each request; leased: this node takes units in advance and spends them; async: this node decides on its last view and reports later. The small text shows the keys that this node decides itself, and its units of them."],
    ["Used, on average", "the share of the limit that was used after each decision, on average."],
    ["Nearly used up", "the share of decisions after which less than 10 % of the limit was left."],
    ["Most in a window", "the most requests that the rule can allow one client in any interval as long as its window, bursts included."],
  ];
  return h("ul", { class: "hint explained" }, meaning.map(([name, words]) => h("li", null, h("b", null, name), `: ${words}`)));
}

/** Warnings, such as rules on facts that requests do not have, or an untrusted proxy. */
function showWarnings(list, status) {
  const given = [status.facts_error, ...(status.warnings ?? [])].filter((line) => line);
  const lines = given.map((line) => visible(line, 600));
  list.hidden = lines.length === 0;
  if (list.textContent !== lines.join("")) fill(list, lines.map((line) => h("li", { class: "message bad" }, line)));
}

function tile(name, value, note, bad) {
  return h("div", { class: bad ? "tile is-bad" : "tile" }, h("dt", null, name), h("dd", null, value), note ? h("dd", { class: "note" }, note) : null);
}

function showTiles(tiles, now, steps) {
  const last = steps.slice(-10);
  const seconds = last.reduce((all, step) => all + step.seconds, 0) || 1;
  const sum = (name) => last.reduce((all, step) => all + step[name], 0);
  const all = sum("allowed") + sum("refused");
  const [median, , slow] = quantiles(last);
  const total = now.counts.decisions.reduce((before, one) => before + one.count, 0);
  const { status, store, servers, memory } = now.process;
  const trouble = status.store_error ?? status.reload_error;
  fill(tiles,
    tile("Decisions a second", rate(all / seconds), `${count(total)} since the start`),
    tile("Refused", percent(all ? sum("refused") / all : 0), `${rate(sum("refused") / seconds)} per second, last 10 s`),
    tile("Median decision time", micros(median), `p99 ${micros(slow)}`),
    servers ? tile("Decided locally", percent(all ? sum("local") / all : 0), "without the store, last 10 s") : null,
    tile("Store", status.store_error ? "down" : "healthy", status.store_error ?? breakers(now.process) ?? store, Boolean(status.store_error)),
    tile("Rules", `version ${now.rule_set.version}`, trouble && !status.store_error ? trouble : `from ${place(now.rule_set.database)}`, Boolean(status.reload_error)),
    memory && (!servers || memory.keys) ? tile(servers ? "Keys of local shares" : "Keys in memory", count(memory.keys), `${bytes(memory.bytes)} of ${bytes(memory.limit)}`) : null);
}

/** The last part of a path; the full path is shown under "This node". */
const place = (database) => (database.startsWith("/") ? database.split("/").at(-1) : database);

function gettingStarted() {
  const curl = `curl -i ${location.origin}/v1/check -d '{"facts":{"ip":"203.0.113.7","method":"POST","path":"/api/orders","api_key":"demo"}}'`;
  return [h("b", null, "No decisions yet."), " Send a request to one of the listeners, or try one on the page ", h("a", { href: "#/try" }, "Try it"),
    ". From a terminal:", h("code", null, curl)];
}

function showRefusals(feed, more, names) {
  const { list, skipped } = refused();
  say(more, skipped ? `a sample; ${count(skipped)} more were not shown` : "");
  if (!list.length) {
    fill(feed, h("li", { class: "empty" }, "No request was refused since this page was opened."));
    return;
  }
  const first = feed.firstChild?.dataset?.at;
  if (first === String(list[0].at_us) && feed.children.length === list.length) return;
  fill(feed, list.map((one) => h("li", { "data-at": one.at_us },
    h("time", null, clock(one.at_us)), untrusted(one.rule),
    outcome(one), h("span", { class: "who" }, untrusted(one.endpoint ?? "any endpoint"), " · ", clientLink(nameOf(one, names), one.bucket_key)))));
}

/** The state of the circuit breakers, if counters are in external servers. */
function breakers({ servers }) {
  if (!servers) return null;
  const open = servers.breakers.filter((one) => one.breaker !== "closed").length;
  return open ? `${open} of ${servers.breakers.length} breakers not closed` : `${servers.breakers.length === 1 ? "breaker" : "all breakers"} closed`;
}

/** The external servers that hold the counters. */
function serverRows({ servers, store }) {
  if (!servers) return [["Store", `${store}, in this process`]];
  const { sum, count: calls } = servers.round_trip_us;
  const errors = Object.entries(servers.errors).filter(([, number]) => number > 0).map(([name, number]) => `${count(number)} ${name.replaceAll("_", " ")}`);
  return [["Store", store], ...servers.breakers.map((one) => [one.server, `breaker ${one.breaker}`]),
    ["Round trip", calls ? `${micros(sum / calls)} on average` : "–"], ["Store errors", errors.join(", ") || "none"],
    ["Nodes", `${servers.nodes} use this store`]];
}

/** What this node decides without asking the store. */
function holdingRows(holdings) {
  if (!holdings) return [];
  const { leased, async: views } = holdings;
  return [["Leased", `${keys(leased.counters)}, ${units(leased.units)} to spend`],
    ["Async", `${keys(views.counters)}, ${units(views.units)} not reported yet`]];
}

/** The stores of other regions, and why nothing is borrowed from one. */
function regionRows(regions) {
  if (!regions) return [];
  return [["Region", regions.region], ...regions.lenders.map((one) => [`Region ${one.region}`, [one.state, one.reason].filter((word) => word).join(": ")])];
}

/** The nodes that share the rules database, and whether they are behind. */
function nodeRows(nodes) {
  if (nodes.length < 2) return [];
  return nodes.map((node) => {
    const state = [node.here ? "this node" : null, node.behind ? "behind" : null, node.silent ? `silent since ${date(node.seen)}` : null];
    return [`Node ${node.name}`, [`version ${node.version}`, ...state.filter((word) => word)].join(", ")];
  });
}

function showState(state, now, latest) {
  const { status, memory, version, pid } = now.process;
  const tally = now.violations;
  const rows = [
    ["State", status.status],
    ...serverRows(now.process),
    ...holdingRows(now.process.holdings),
    ...regionRows(now.process.regions),
    status.store_error ? ["Store error", status.store_error] : null,
    status.region_error ? ["Region error", status.region_error] : null,
    ["Active rules", `version ${now.rule_set.version}, ${count(now.rule_set.rules)} rules (${status.rules_version})`],
    ["Latest saved version", latest === null ? "–" : latest.database_error ?? `${latest.latest} (${latest.latest === now.rule_set.version ? "active" : "not active here yet"})`],
    ["Rules come from", latest?.rules ? `${latest.rules.name}${latest.rules.editable ? "" : " (read-only here)"}` : now.rule_set.database],
    ...nodeRows(latest?.nodes ?? []),
    status.reload_error ? ["Newer rules", status.reload_error] : null,
    memory ? ["Memory", `${bytes(memory.bytes)} of ${bytes(memory.limit)}, ${count(memory.keys)} keys, ${count(memory.overflow)} shared`] : null,
    ["Violations", `${count(tally.written)} written, ${count(tally.waiting)} waiting, ${count(tally.dropped)} dropped`],
    ["Program", `tidegate ${version}, process ${pid}`],
  ];
  fill(state, rows.filter((row) => row).flatMap(([name, value]) => [h("dt", null, untrusted(name)), h("dd", null, untrusted(value))]));
}
