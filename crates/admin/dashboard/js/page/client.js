// The page of one client: its counters, its rate jumps and its violations.

import { call } from "/dashboard/js/api.js";
import { fill, h, table, untrusted, visible } from "/dashboard/js/dom.js";
import { count } from "/dashboard/js/format.js";
import { namesByKey, parts, searched } from "/dashboard/js/identity.js";
import { jumped, times, violations } from "/dashboard/js/page/client_tables.js";

const NUMBER = "number";
const EVERY_MS = 2000;
const MOST = 1000;

/** Shows the page of a client. */
export function show(main, client) {
  const [counters, bursts, records] = [h("div"), h("div"), h("div")];
  const message = h("div", { class: "message bad", role: "alert" });
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Client ", untrusted(client)),
    h("p", null, h("a", { href: "#/clients" }, "All clients"), tryIt(client))),
  message,
  h("div", { class: "stack" },
    h("section", { class: "card" }, h("h2", null, "Counters of the last 1–2 minutes"), counters),
    h("section", { class: "card" }, h("h2", null, "Sudden jumps"), bursts),
    h("section", { class: "card" }, h("h2", null, "Violations"), records)));

  async function load() {
    try {
      const [{ body: keys }, { body: jumps }] = await Promise.all([call("GET", `/v1/top?limit=${MOST}`), call("GET", "/v1/bursts?limit=100")]);
      const named = keys.top.filter((one) => isOf(client, one.client));
      const list = await recorded(client, new Set(named.map((one) => one.key)));
      const known = new Set([...named.map((one) => one.key), ...list.map((one) => one.bucket_key)]);
      const isSame = (one) => known.has(one.key) || isOf(client, one.client);
      fill(counters, byRule(keys.top.filter(isSame)));
      fill(bursts, jumped(jumps.bursts.filter(isSame).reverse(), "The request rate of this client has not jumped tenfold."));
      fill(records, violations(list, namesByKey(keys.top, jumps.bursts), false));
      fill(message);
    } catch (error) {
      fill(message, error.message);
    }
    if (shown) later = setTimeout(load, EVERY_MS);
  }

  let shown = true;
  let later;
  load();
  return () => {
    shown = false;
    clearTimeout(later);
  };
}

/** Whether a name from `/v1/top` contains all parts of the client's name. */
function isOf(client, who) {
  if (!who) return false;
  const has = parts(who).map((part) => part.join("="));
  return parts(client).every((part) => has.includes(part.join("=")));
}

/** The latest violations of a client: searched by the API if possible, otherwise filtered by the
 * keys of its counters. */
async function recorded(client, keys) {
  const by = searched(client);
  const query = new URLSearchParams(by ? { [by[0]]: by[1], limit: 50 } : { limit: MOST });
  const { body } = await call("GET", `/v1/violations?${query}`);
  return by ? body.violations : body.violations.filter((one) => keys.has(one.bucket_key)).slice(0, 50);
}

/** The number of requests and refusals of the client, by rule. */
function byRule(list) {
  if (!list.length) return h("p", { class: "empty" }, "No rule counted this client in the last 1–2 minutes, or it was not among the busiest.");
  const rows = new Map();
  for (const one of list) {
    const row = rows.get(`${one.rule}\n${one.key}`) ?? { rule: one.rule, client: one.client };
    rows.set(`${one.rule}\n${one.key}`, { ...row, [one.kind]: one });
  }
  const cell = (one) => h("td", { class: NUMBER }, one ? times(one) : "–");
  const error = ({ refused, busiest }) => count(Math.max(refused?.error ?? 0, busiest?.error ?? 0));
  return table("Counters of this client", ["Rule", "Counted by", { text: "Requests", class: NUMBER }, { text: "Refused", class: NUMBER }, { text: "Max. error", class: NUMBER }],
    h("tbody", null, [...rows.values()].map((row) => h("tr", null, h("th", { scope: "row" }, untrusted(row.rule)), h("td", { class: "whole" }, untrusted(row.client ?? "–")),
      cell(row.busiest), cell(row.refused), h("td", { class: NUMBER }, error(row))))));
}

/** A link that explains a request of the client, if its facts are known in plain text. */
function tryIt(client) {
  const known = parts(client).filter(([, value]) => value && !value.startsWith("h:") && !value.endsWith("…"));
  if (!known.length) return null;
  const names = known.map(([fact]) => fact).join(", ");
  return [" · ", h("a", { href: `#/try?${new URLSearchParams(known)}` }, `Explain a request with this ${visible(names)}`)];
}
