// The overview: how much is decided, how fast, what each rule does, who is refused now, and how the limiter is.

import { call } from "/dashboard/js/api.js";
import { fill, h, say, table, theirs } from "/dashboard/js/dom.js";
import { bytes, clock, count, date, micros, percent, rate } from "/dashboard/js/format.js";
import { newest, past, refused, SECONDS, watch } from "/dashboard/js/history.js";
import { latency, quantiles } from "/dashboard/js/chart/line.js";
import { stack } from "/dashboard/js/chart/stack.js";
import { ruleRows } from "/dashboard/js/page/rule_rows.js";

const HEADS = ["Rule", "Mode", "Last minute", { text: "Asked/s", class: "number" }, { text: "Refused/s", class: "number" },
  "Used, on average", { text: "Nearly used up", class: "number" }, { text: "Most in a window", class: "number" }];

/** Shows the page. */
export function show(main) {
  const tiles = h("dl", { class: "tiles" });
  const decisions = stack(SECONDS);
  const durations = latency(SECONDS);
  const rows = ruleRows();
  const rules = h("div");
  const feed = h("ol", { class: "feed", tabindex: "0", "aria-label": "Violations, newest first" });
  const more = h("p", { class: "hint" });
  const state = h("dl", { class: "facts" });
  const quiet = h("div", { class: "card empty", id: "quiet" });
  fill(main,
    h("h1", { class: "visually-hidden" }, "Overview"),
    h("div", { class: "stack overview" },
      tiles, quiet,
      h("div", { class: "two" },
        h("section", { class: "card" }, h("h2", null, "Decisions a second"), decisions.place),
        h("section", { class: "card" }, h("h2", null, "How long decisions take"), durations.place)),
      h("section", { class: "card" }, h("header", null, h("h2", null, "Rules"), h("small", null, "“Nearly used up”: decisions after which less than a tenth was left")), rules),
      h("div", { class: "two" },
        h("section", { class: "card" }, h("header", null, h("h2", null, "Refused now"), more), feed),
        h("section", { class: "card" }, h("h2", null, "This node"), state))));
  fill(rules, table("Rules and what they do", HEADS, rows.body));
  let latest = null;
  const look = async () => {
    // What is on record elsewhere is asked for now and then; the events tell what is in force here.
    latest = await call("GET", "/v1/status").then(({ body }) => body, () => null);
  };
  look();
  const looking = setInterval(look, 10000);
  const seen = watch(() => {
    const now = newest();
    const steps = past();
    if (!now) return;
    show_tiles(tiles, now, steps);
    quiet.hidden = now.counts.decisions.some((one) => one.count > 0);
    if (!quiet.hidden && !quiet.firstChild) fill(quiet, how_to_begin());
    decisions.update(steps);
    durations.update(steps);
    rows.update(now.counts.rules, steps);
    show_refused(feed, more);
    show_state(state, now, latest);
  });
  return () => [seen, decisions.ended, durations.ended, () => clearInterval(looking)].forEach((end) => end());
}

function tile(name, value, note, bad) {
  return h("div", { class: bad ? "tile is-bad" : "tile" }, h("dt", null, name), h("dd", null, value), note ? h("dd", { class: "note" }, note) : null);
}

function show_tiles(tiles, now, steps) {
  const last = steps.slice(-10);
  const seconds = last.reduce((all, step) => all + step.seconds, 0) || 1;
  const sum = (name) => last.reduce((all, step) => all + step[name], 0);
  const all = sum("allowed") + sum("refused");
  const [median, , slow] = quantiles(last);
  const total = now.counts.decisions.reduce((before, one) => before + one.count, 0);
  const { status, store, memory } = now.process;
  const trouble = status.store_error ?? status.reload_error;
  fill(tiles,
    tile("Decisions a second", rate(all / seconds), `${count(total)} since the start`),
    tile("Refused", percent(all ? sum("refused") / all : 0), `${rate(sum("refused") / seconds)} a second, last 10 s`),
    tile("Half are decided within", micros(median), `99 of 100 within ${micros(slow)}`),
    tile("Store", status.store_error ? "gone" : "well", status.store_error ?? breakers(now.process) ?? store, Boolean(status.store_error)),
    tile("Rules", `version ${now.office.version}`, trouble && !status.store_error ? trouble : `kept in ${place(now.office.database)}`, Boolean(status.reload_error)),
    memory ? tile("Keys in memory", count(memory.keys), `${bytes(memory.bytes)} of ${bytes(memory.limit)}`) : null);
}

/** The last part of a path: all of it is told below. */
const place = (database) => (database.startsWith("/") ? database.split("/").at(-1) : database);

function how_to_begin() {
  const curl = `curl -i ${location.origin}/v1/check -d '{"facts":{"ip":"203.0.113.7","method":"POST","path":"/api/orders","api_key":"demo"}}'`;
  return [h("b", null, "No decisions yet."), " Send a request to one of the doors, or try one on the page ", h("a", { href: "#/try" }, "Try it"),
    ". From a terminal:", h("code", null, curl)];
}

function show_refused(feed, more) {
  const { list, skipped } = refused();
  say(more, skipped ? `a sample; ${count(skipped)} more were not shown` : "");
  if (!list.length) {
    fill(feed, h("li", { class: "empty" }, "Nobody was refused since this page was opened."));
    return;
  }
  const first = feed.firstChild?.dataset?.at;
  if (first === String(list[0].at_us) && feed.children.length === list.length) return;
  fill(feed, list.map((one) => h("li", { "data-at": one.at_us },
    h("time", null, clock(one.at_us)), theirs(one.rule),
    h("span", { class: `badge is-${one.enforced ? "deny" : "shadow"}` }, one.enforced ? "refused" : "shadow"),
    h("span", { class: "who" }, theirs(one.endpoint ?? "any endpoint"), " · ", theirs(one.user_id ?? one.ip ?? one.bucket_key)))));
}

/** What the breakers of the servers are at, where there are servers. */
function breakers({ servers }) {
  if (!servers) return null;
  const open = servers.breakers.filter((one) => one.breaker !== "closed").length;
  return open ? `${open} of ${servers.breakers.length} breakers not closed` : `${servers.breakers.length === 1 ? "breaker" : "all breakers"} closed`;
}

/** What is told of servers that counters are kept in. */
function show_servers({ servers, store }) {
  if (!servers) return [["Store", `${store}, in this process`]];
  const { sum, count: calls } = servers.round_trip_us;
  const errors = Object.entries(servers.errors).filter(([, number]) => number > 0).map(([name, number]) => `${count(number)} ${name.replaceAll("_", " ")}`);
  return [["Store", store], ...servers.breakers.map((one) => [one.server, `breaker ${one.breaker}`]),
    ["Round trip", calls ? `${micros(sum / calls)} on average` : "–"], ["Not answered", errors.join(", ") || "none"],
    ["Nodes", `${servers.nodes} count in this store`]];
}

/** Who else follows these rules, and who is behind. */
function show_nodes(nodes) {
  if (nodes.length < 2) return [];
  return nodes.map((node) => {
    const state = [node.here ? "this node" : null, node.behind ? "behind" : null, node.silent ? `silent since ${date(node.seen)}` : null];
    return [`Node ${node.name}`, [`version ${node.version}`, ...state.filter((word) => word)].join(", ")];
  });
}

function show_state(state, now, latest) {
  const { status, memory, version, pid } = now.process;
  const tally = now.violations;
  const rows = [
    ["State", status.status],
    ...show_servers(now.process),
    status.store_error ? ["Store error", status.store_error] : null,
    ["Rules in force", `version ${now.office.version}, ${count(now.office.rules)} rules (${status.rules_version})`],
    ["Newest on record", latest === null ? "–" : latest.database_error ?? (latest.latest === now.office.version ? "the same" : `version ${latest.latest}, not in force here yet`)],
    ["Kept in", now.office.database],
    ...show_nodes(latest?.nodes ?? []),
    status.reload_error ? ["Newer rules", status.reload_error] : null,
    memory ? ["Memory", `${bytes(memory.bytes)} of ${bytes(memory.limit)}, ${count(memory.keys)} keys, ${count(memory.overflow)} shared`] : null,
    ["Violations", `${count(tally.written)} written, ${count(tally.waiting)} waiting, ${count(tally.dropped)} dropped`],
    ["Program", `tidegate ${version}, process ${pid}`],
  ];
  fill(state, rows.filter((row) => row).flatMap(([name, value]) => [h("dt", null, theirs(name)), h("dd", null, theirs(value))]));
}
