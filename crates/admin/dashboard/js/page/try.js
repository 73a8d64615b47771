// "Try it": how a request would be decided, by which rules, and the quota left. Explaining uses no
// quota.

import { call } from "/dashboard/js/api.js";
import { field, fill, h, table, untrusted, visible } from "/dashboard/js/dom.js";
import { count, millis, units } from "/dashboard/js/format.js";

const NAMED = ["method", "path", "ip", "api_key", "user_id", "tier"];
const EXAMPLE = { path: "/api/orders", ip: "203.0.113.7", api_key: "demo" };
// Cells whose text gets a separate line on a phone.
const WHOLE = { class: "whole" };
const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/** Shows the page. */
export function show(main) {
  // A link from another page may contain a client's facts.
  const prefilled = new URLSearchParams(location.hash.split("?")[1]);
  const others = [...prefilled].filter(([name]) => !NAMED.includes(name)).map((part) => part.join("=")).join("\n");
  const inputs = new Map(NAMED.map((name) => [name, name === "method"
    ? h("select", null, METHODS.map((method) => h("option", { selected: method === "POST" }, method)))
    : h("input", { type: "text", spellcheck: "false", autocomplete: "off", value: prefilled.get(name) ?? EXAMPLE[name] ?? "" })]));
  const cost = h("input", { type: "number", min: 1, value: 1 });
  const more = h("textarea", { rows: 3, spellcheck: "false", placeholder: "tenant=acme\nregion=eu" }, others);
  const message = h("div", { role: "status" });
  const form = h("form", { on: { submit: (event) => { event.preventDefault(); send("/v1/explain"); } } },
    h("div", { class: "fields" }, NAMED.map((name) => field(name, inputs.get(name))), field("cost", cost)),
    h("div", { class: "more" }, field("more facts, one per line", more)),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Explain"),
      h("button", { type: "button", on: { click: () => send("/v1/check") } }, "Send it and use quota"),
      h("span", { class: "hint" }, "Explain does not use any quota.")));
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Try it"),
    h("p", null, "Describe a request, and see which rules apply, which counter it uses, and what is left.")),
  h("div", { class: "stack" }, h("section", { class: "card" }, form), message));

  async function send(path) {
    const facts = {};
    for (const [name, input] of inputs) if (input.value) facts[name] = input.value;
    for (const line of more.value.split("\n").filter((text) => text.trim())) {
      const [name, ...value] = line.split("=");
      facts[name.trim()] = value.join("=").trim();
    }
    try {
      const { body } = await call("POST", path, { body: { facts, cost: Number(cost.value) } });
      fill(message, path === "/v1/explain" ? explained(body) : checked(body));
    } catch (error) {
      fill(message, h("p", { class: "message bad", role: "alert" }, error.problem?.field ? `${visible(error.problem.field)}: ${error.message}` : error.message));
    }
  }
}

function verdict(decision, words) {
  return h("p", { class: `verdict message ${decision.allowed ? "good" : "bad"}` },
    h("span", { "aria-hidden": "true" }, decision.allowed ? "✓" : "✕"), h("span", null, words));
}

function explained(body) {
  return h("section", { class: "card" }, h("h2", null, body.decision.allowed ? "It would pass" : "It would be refused"),
    verdict(body.decision, visible(body.why, 400)),
    body.rules.length ? table("Rules that apply to the request", ["Rule", "Matched by", "Counter of", "Limit", "Bound", "Result"],
      h("tbody", null, body.rules.map((rule) => h("tr", null,
        h("th", { scope: "row" }, untrusted(rule.id)),
        h("td", WHOLE, untrusted(rule.matched.join(", ") || "every request")),
        h("td", WHOLE, untrusted(Object.entries(rule.key).map(([name, value]) => `${name}=${value}`).join(" ") || "everyone")),
        h("td", WHOLE, untrusted(rule.limit), counted(rule.consistency)),
        h("td", WHOLE, untrusted(rule.bound)),
        h("td", WHOLE, h("span", { class: `badge is-${rule.verdict}` }, rule.verdict.replace("_", " ")), " ", untrusted(rule.why))))))
      : h("p", { class: "empty" }, "No rule applies to this request, so it is allowed."));
}

/** How a rule counts, and what this node holds of the counter. */
function counted(consistency) {
  if (!consistency) return null;
  const { mode, description, units: held } = consistency;
  const here = held === null ? "" : `; this node has ${units(held)} ${mode === "leased" ? "to spend" : "not reported yet"}`;
  return h("small", { class: "line" }, untrusted(description), here);
}

function checked(decision) {
  const words = decision.allowed
    ? `Allowed; quota was used.${decision.rule === null ? " No rule applies to it." : ` ${count(decision.remaining ?? 0)} of ${count(decision.limit ?? 0)} left of ${visible(decision.rule)}.`}`
    : `Refused by ${visible(decision.rule)}; ${decision.retry_after_ms === null ? "retrying will not help" : `retry in ${millis(decision.retry_after_ms)}`}. No quota was used.`;
  return h("section", { class: "card" }, h("h2", null, "Outcome"), verdict(decision, words),
    decision.rules.length ? table("Result of each rule", ["Rule", "Mode", "Verdict", { text: "Left", class: "number" }, { text: "Of", class: "number" }, { text: "Full again in", class: "number" }],
      h("tbody", null, decision.rules.map((rule) => h("tr", null, h("th", { scope: "row" }, untrusted(rule.id)), h("td", null, rule.mode),
        h("td", null, h("span", { class: `badge is-${rule.verdict}` }, rule.verdict.replace("_", " "))),
        h("td", { class: "number" }, rule.remaining === null ? "–" : count(rule.remaining)), h("td", { class: "number" }, rule.limit === null ? "–" : count(rule.limit)),
        h("td", { class: "number" }, millis(rule.reset_after_ms)))))) : null);
}
