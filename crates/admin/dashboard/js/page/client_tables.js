// Tables shared by the list of clients and the page of one client: violations and rate jumps.

import { h, table, untrusted } from "/dashboard/js/dom.js";
import { clock, count, date } from "/dashboard/js/format.js";
import { clientLink, nameOf } from "/dashboard/js/identity.js";

const NUMBER = "number";

/** The table of violations. `names` maps counter keys to client names. */
export function violations(list, names, grouped) {
  if (!list.length) return h("p", { class: "empty" }, "No violations are recorded for this period. Refusals appear within a second.");
  const heads = ["Client", grouped ? "Last" : "When", "Rule", "Endpoint", "Counter", grouped ? { text: "Times", class: NUMBER } : "Outcome"];
  return table("Violation log", heads, h("tbody", null, list.map((one) => h("tr", null,
    h("th", { scope: "row" }, clientLink(nameOf(one, names))), h("td", null, date(one.at)), h("td", null, untrusted(one.rule)),
    h("td", null, untrusted(one.endpoint ?? "–")), h("td", { class: "mono" }, one.bucket_key.slice(0, 12)),
    grouped ? h("td", { class: NUMBER }, count(one.count)) : h("td", null, outcome(one))))));
}

/** The outcome of a violation, as a badge. */
export const outcome = (one) => h("span", { class: `badge is-${one.enforced ? "deny" : "shadow"}` }, one.enforced ? "refused" : "shadow");

/** Clients whose request rate jumped. */
export function jumped(list, otherwise = "No client’s request rate has jumped tenfold.") {
  if (!list.length) return h("p", { class: "empty" }, otherwise);
  return table("Clients whose request rate jumped", ["Client", "When", "Rule", { text: "Requests/s", class: NUMBER }, { text: "Before", class: NUMBER }],
    h("tbody", null, list.map((one) => h("tr", null, h("th", { scope: "row" }, clientLink(one.client, one.key)), h("td", null, clock(one.at_us)),
      h("td", null, untrusted(one.rule)), h("td", { class: NUMBER }, count(one.rate)), h("td", { class: NUMBER }, count(one.mean))))));
}

/** A count that may be an estimate. */
export const times = (one) => `${one.spread ? "about " : ""}${count(one.count)}`;
