// The most refused and the busiest clients by rule, rate jumps, and the violation log. Each client
// links to its page.

import { call } from "/dashboard/js/api.js";
import { field, fill, h, table, untrusted } from "/dashboard/js/dom.js";
import { count } from "/dashboard/js/format.js";
import { clientLink, namesByKey } from "/dashboard/js/identity.js";
import { show as showClient } from "/dashboard/js/page/client.js";
import { jumped, times, violations } from "/dashboard/js/page/client_tables.js";

const NUMBER = "number";
const EVERY_MS = 2000;

/** Shows the page, or the page of the client that the address names. */
export function show(main) {
  const client = new URLSearchParams(location.hash.split("?")[1]).get("client");
  return client ? showClient(main, client) : showAll(main);
}

function showAll(main) {
  const top = h("div", { class: "even" });
  const bursts = h("div");
  const records = h("div");
  const rule = field("Rule", h("input", { type: "text", placeholder: "all rules", spellcheck: "false" }));
  const since = field("Since", h("select", null, [["5 minutes", 300], ["1 hour", 3600], ["1 day", 86400], ["30 days", 2592000]]
    .map(([words, seconds]) => h("option", { value: seconds }, words))));
  const form = h("form", { on: { submit: (event) => { event.preventDefault(); search(); } } },
    h("div", { class: "fields" }, rule, since), h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Search"),
      h("button", { type: "button", on: { click: () => search(true) } }, "Group by client")));
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Clients"),
    h("p", null, "Approximate counts for the last 1–2 minutes; each may be overstated by at most “Max. error”. Identities are visible only with full read access. Follow a client by its link.")),
  h("div", { class: "stack" }, top, h("section", { class: "card" }, h("h2", null, "Sudden jumps"), bursts),
    h("section", { class: "card" }, h("h2", null, "Violation log"), form, records)));
  let names = new Map();

  async function search(grouped = false) {
    const query = new URLSearchParams({ since: new Date(Date.now() - since.input.value * 1000).toISOString().replace(/\.\d+Z/, "Z"), limit: 20 });
    if (rule.input.value.trim()) query.set("rule", rule.input.value.trim());
    try {
      const { body } = await call("GET", `/v1/violations${grouped ? "/top" : ""}?${query}`);
      fill(records, violations(grouped ? body.top : body.violations, names, grouped));
    } catch (error) {
      fill(records, h("p", { class: "message bad", role: "alert" }, error.message));
    }
  }
  async function rank() {
    try {
      const [{ body: keys }, { body: jumps }] = await Promise.all([call("GET", "/v1/top?limit=100"), call("GET", "/v1/bursts?limit=8")]);
      const of = (kind) => keys.top.filter((one) => one.kind === kind).slice(0, 10);
      names = namesByKey(keys.top, jumps.bursts);
      fill(top, ranked("Most refused", "refused", of("refused")), ranked("Busiest", "seen", of("busiest")));
      fill(bursts, jumped(jumps.bursts.reverse()));
    } catch (error) {
      fill(top, h("p", { class: "message bad" }, error.message));
    }
    if (shown) later = setTimeout(rank, EVERY_MS);
  }

  let shown = true;
  let later;
  // Load the lists first: the log takes the clients' names from them.
  rank().then(() => search());
  return () => {
    shown = false;
    clearTimeout(later);
  };
}

function ranked(title, word, list) {
  const inside = list?.length
    ? table(title, ["Client", "Rule", { text: `Times ${word}`, class: NUMBER }, { text: "Max. error", class: NUMBER }],
      h("tbody", null, list.map((one) => h("tr", null, h("th", { scope: "row" }, clientLink(one.client, "everyone")), h("td", null, untrusted(one.rule)),
        h("td", { class: NUMBER }, times(one)), h("td", { class: NUMBER }, one.error ? count(one.error) : "0")))))
    : h("p", { class: "empty" }, `No client was ${word} in the last 1–2 minutes.`);
  return h("section", { class: "card" }, h("h2", null, title), inside);
}
