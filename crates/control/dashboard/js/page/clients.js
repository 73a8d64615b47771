// Who is refused and who is busy at present, by rule, whose requests have jumped, and the violations on record.

import { call } from "/dashboard/js/api.js";
import { field, fill, h, table, theirs } from "/dashboard/js/dom.js";
import { clock, count, date } from "/dashboard/js/format.js";

const NUMBER = "number";
const EVERY_MS = 2000;

/** Shows the page. */
export function show(main) {
  const top = h("div", { class: "even" });
  const bursts = h("div");
  const records = h("div");
  const rule = field("Rule", h("input", { type: "text", placeholder: "all rules", spellcheck: "false" }));
  const since = field("Since", h("select", null, [["5 minutes", 300], ["1 hour", 3600], ["1 day", 86400], ["30 days", 2592000]]
    .map(([words, seconds]) => h("option", { value: seconds }, words))));
  const ask = h("form", { on: { submit: (event) => { event.preventDefault(); look(); } } },
    h("div", { class: "fields" }, rule, since), h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Look"),
      h("button", { type: "button", on: { click: () => look(true) } }, "Who most")));
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Clients"),
    h("p", null, "The last one to two minutes, in sketches of a fixed size: a count is never too low, and never more than “too high by” above the truth. Who a key belongs to is told to those who may read everything here.")),
  h("div", { class: "stack" }, top, h("section", { class: "card" }, h("h2", null, "Sudden jumps"), bursts),
    h("section", { class: "card" }, h("h2", null, "On record"), ask, records)));

  async function look(most = false) {
    const query = new URLSearchParams({ since: new Date(Date.now() - since.input.value * 1000).toISOString().replace(/\.\d+Z/, "Z"), limit: 20 });
    if (rule.input.value.trim()) query.set("rule", rule.input.value.trim());
    try {
      const { body } = await call("GET", `/v1/violations${most ? "/top" : ""}?${query}`);
      fill(records, violations(most ? body.top : body.violations, most));
    } catch (error) {
      fill(records, h("p", { class: "told bad", role: "alert" }, error.message));
    }
  }
  async function rank() {
    try {
      const [{ body: keys }, { body: jumps }] = await Promise.all([call("GET", "/v1/top?limit=10"), call("GET", "/v1/bursts?limit=8")]);
      const of = (kind) => keys.top.filter((one) => one.kind === kind);
      fill(top, ranked("Most refused", "refused", of("refused")), ranked("Busiest", "seen", of("busiest")));
      fill(bursts, jumped(jumps.bursts.reverse()));
    } catch (error) {
      fill(top, h("p", { class: "told bad" }, error.message));
    }
    if (shown) later = setTimeout(rank, EVERY_MS);
  }

  let shown = true;
  let later;
  look();
  rank();
  return () => {
    shown = false;
    clearTimeout(later);
  };
}

function jumped(list) {
  if (!list.length) return h("p", { class: "empty" }, "Nobody’s requests came ten times as fast as before.");
  return table("Keys whose requests jumped", ["When", "Key", "Rule", { text: "Requests/s", class: NUMBER }, { text: "Before", class: NUMBER }],
    h("tbody", null, list.map((one) => h("tr", null, h("td", null, clock(one.at_us)), h("th", { scope: "row" }, theirs(one.who ?? one.key)),
      h("td", null, theirs(one.rule)), h("td", { class: NUMBER }, count(one.rate)), h("td", { class: NUMBER }, count(one.mean))))));
}

function ranked(title, word, list) {
  const inside = list?.length
    ? table(title, ["Key", "Rule", { text: `Times ${word}`, class: NUMBER }, { text: "Too high by", class: NUMBER }],
      h("tbody", null, list.map((one) => h("tr", null, h("th", { scope: "row" }, theirs(one.who || "everybody")), h("td", null, theirs(one.rule)),
        h("td", { class: NUMBER }, `${one.spread ? "about " : ""}${count(one.count)}`), h("td", { class: NUMBER }, one.error ? `≤ ${count(one.error)}` : "0")))))
    : h("p", { class: "empty" }, `Nobody was ${word} yet.`);
  return h("section", { class: "card" }, h("h2", null, title), inside);
}

function violations(list, most) {
  if (!list.length) return h("p", { class: "empty" }, "Nothing is on record for this time. Refusals are written within a second.");
  const heads = [most ? "Last" : "When", "Rule", "Endpoint", "Client", "Key", most ? { text: "Times", class: NUMBER } : "What came of it"];
  return table("Violations on record", heads, h("tbody", null, list.map((one) => h("tr", null,
    h("td", null, date(one.at)), h("td", null, theirs(one.rule)), h("td", null, theirs(one.endpoint ?? "–")),
    h("td", null, theirs(one.user_id ?? one.ip ?? "–")), h("td", { class: "mono" }, one.bucket_key.slice(0, 12)),
    most ? h("td", { class: NUMBER }, count(one.count))
      : h("td", null, h("span", { class: `badge is-${one.enforced ? "deny" : "shadow"}` }, one.enforced ? "refused" : "shadow"))))));
}
