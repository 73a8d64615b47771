// Tables that the list of clients and the page of one client share: violations and jumps.

import { h, table, theirs } from "/dashboard/js/dom.js";
import { clock, count, date } from "/dashboard/js/format.js";
import { clientLink, nameOf } from "/dashboard/js/identity.js";

const NUMBER = "number";

/** The table. `names` has the names of clients by the key of their counter. */
export function violations(list, names, grouped) {
  if (!list.length) return h("p", { class: "empty" }, "No violations are recorded for this time. Refusals appear within a second.");
  const heads = ["Client", grouped ? "Last" : "When", "Rule", "Endpoint", "Counter", grouped ? { text: "Times", class: NUMBER } : "Outcome"];
  return table("Violation log", heads, h("tbody", null, list.map((one) => h("tr", null,
    h("th", { scope: "row" }, clientLink(nameOf(one, names))), h("td", null, date(one.at)), h("td", null, theirs(one.rule)),
    h("td", null, theirs(one.endpoint ?? "–")), h("td", { class: "mono" }, one.bucket_key.slice(0, 12)),
    grouped ? h("td", { class: NUMBER }, count(one.count)) : h("td", null, outcome(one))))));
}

/** What was decided, as a badge. */
export const outcome = (one) => h("span", { class: `badge is-${one.enforced ? "deny" : "shadow"}` }, one.enforced ? "refused" : "shadow");

/** Clients whose request rate jumped. */
export function jumped(list, otherwise = "No client’s request rate has jumped tenfold.") {
  if (!list.length) return h("p", { class: "empty" }, otherwise);
  return table("Clients whose request rate jumped", ["Client", "When", "Rule", { text: "Requests/s", class: NUMBER }, { text: "Before", class: NUMBER }],
    h("tbody", null, list.map((one) => h("tr", null, h("th", { scope: "row" }, clientLink(one.who, one.key)), h("td", null, clock(one.at_us)),
      h("td", null, theirs(one.rule)), h("td", { class: NUMBER }, count(one.rate)), h("td", { class: NUMBER }, count(one.mean))))));
}

/** A count that may be an estimate. */
export const times = (one) => `${one.spread ? "about " : ""}${count(one.count)}`;
