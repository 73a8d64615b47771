// The rules in force, one by one: what each says, at which version it was last changed, and its switch.

import { call, signed } from "/dashboard/js/api.js";
import { fill, h, theirs, visible } from "/dashboard/js/dom.js";
import { newest, watch } from "/dashboard/js/history.js";

/** Shows the page. */
export function show(main) {
  const list = h("div");
  const told = h("div", { class: "told", role: "status" });
  const about = h("p");
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Rules"), about), told, list);
  let version = null;

  async function load() {
    try {
      const rules = [];
      for (let after = null; ;) {
        const { body } = await call("GET", `/v1/rules${after === null ? "" : `?after=${encodeURIComponent(after)}`}`);
        rules.push(...body.rules);
        version = body.version;
        after = body.next;
        if (after === null) break;
      }
      fill(about, `${rules.length} rules, version ${version}. `, h("a", { href: "#/edit" }, "Change them"), " · ", h("a", { href: "#/versions" }, "earlier versions"));
      fill(list, rules.length ? h("div", { class: "rule-cards" }, rules.map((rule) => card(rule, change)))
        : h("p", { class: "empty" }, "There are no rules, so every request passes. ", h("a", { href: "#/edit" }, "Write the first one"), "."));
    } catch (error) {
      fail(error);
    }
  }

  async function change(rule, active) {
    const word = active ? "enable" : "disable";
    try {
      await call("POST", `/v1/rules/${encodeURIComponent(rule.id)}/${word}`, { headers: signed("dashboard", `${word}d in the dashboard`) });
      told.className = "told good";
      fill(told, `${visible(rule.id)} is ${active ? "on" : "off"} now.`);
      await load();
    } catch (error) {
      fail(error);
    }
  }

  function fail(error) {
    told.className = "told bad";
    fill(told, error.message);
  }

  load();
  // Somebody else may change them meanwhile.
  return watch(() => {
    const now = newest()?.office.version;
    if (version !== null && now !== undefined && now !== version) load();
  });
}

function card(kept, change) {
  const { description, ...said } = kept.rule;
  const active = kept.rule.is_active !== false;
  const mode = kept.rule.mode ?? "enforce";
  return h("article", { class: "card rule-card" },
    h("header", null, h("h2", null, theirs(kept.id)),
      h("span", { class: `badge is-${active ? "allow" : "shadow"}` }, active ? "on" : "off"),
      mode === "enforce" ? null : h("span", { class: `badge is-${mode}` }, theirs(mode)),
      h("small", null, kept.version ? `changed in version ${kept.version}` : "from the file"),
      h("div", { class: "actions" }, h("a", { href: `#/edit?rule=${encodeURIComponent(kept.id)}` }, "Edit", h("span", { class: "visually-hidden" }, ` ${visible(kept.id)}`)), h("button", { class: "small", on: { click: () => change(kept, !active) } },
        active ? "Switch off" : "Switch on", h("span", { class: "visually-hidden" }, ` ${visible(kept.id)}`)))),
    description ? h("p", null, theirs(description)) : null,
    h("pre", { tabindex: "0", "aria-label": `What ${visible(kept.id)} says` }, lines(said)));
}

/** A rule in a few lines, a field each. */
function lines(said) {
  const text = Object.entries(said).filter(([name]) => name !== "id")
    .map(([name, value]) => `${name}: ${flow(value)}`).join("\n");
  return visible(text.replaceAll("\n", "\u2424"), 2000).replaceAll("\u2424", "\n");
}

/** A value as YAML has it on one line. */
function flow(value) {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{ ${Object.entries(value).map(([name, inner]) => `${name}: ${flow(inner)}`).join(", ")} }`;
  return typeof value === "string" && /^[\w./:%-][\w ./:%-]*$/.test(value) ? value : JSON.stringify(value);
}
