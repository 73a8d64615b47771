// The rules, one by one: what each says, at which version it was last changed, and its switch.

import { call, readOnlyReason, signed } from "/dashboard/js/api.js";
import { confirm } from "/dashboard/js/confirm.js";
import { fill, h, theirs, visible } from "/dashboard/js/dom.js";
import { newest, watch } from "/dashboard/js/history.js";

/** Shows the page. */
export function show(main) {
  const list = h("div");
  const told = h("div", { class: "told", role: "status" });
  const about = h("p");
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Rules"), about), told, list);
  let version = null;
  // The version of each rule as it is shown: a rule that changed since is not switched.
  let seen = new Map();

  async function load() {
    try {
      const [rules, readOnly] = [[], await readOnlyReason()];
      for (let after = null; ;) {
        const { body } = await call("GET", `/v1/rules${after === null ? "" : `?after=${encodeURIComponent(after)}`}`);
        rules.push(...body.rules);
        version = body.version;
        after = body.next;
        if (after === null) break;
      }
      seen = new Map(rules.map((rule) => [rule.id, rule.version]));
      fill(about, `${rules.length} ${rules.length === 1 ? "rule" : "rules"}, version ${version}. `, links(readOnly));
      fill(list, rules.length ? h("div", { class: "rule-cards" }, rules.map((rule) => card(rule, ask, readOnly)))
        : h("p", { class: "empty" }, "There are no rules, so every request passes. ", readOnly ? null : h("a", { href: "#/edit" }, "Write the first one")));
    } catch (error) {
      tell("bad", error.message);
    }
  }

  /** Switches a rule after the user has confirmed it. */
  async function ask(rule, active) {
    const name = visible(rule.id);
    const given = await confirm({
      title: active ? `Switch on ${name}?` : `Switch off ${name}?`,
      text: active ? "The rule limits requests again as soon as you confirm." : "The rule stops limiting requests as soon as you confirm. You can undo this afterwards.",
      action: active ? "Switch on" : "Switch off",
      isReasonRequired: !active,
    });
    if (!given) return;
    const reason = given.reason || `${active ? "enabled" : "disabled"} in the dashboard`;
    await change(rule.id, active, given.author || "dashboard", reason, true);
  }

  async function change(id, active, author, reason, canUndo) {
    try {
      await call("POST", `/v1/rules/${encodeURIComponent(id)}/${active ? "enable" : "disable"}`, { headers: { ...signed(author, reason), "if-match": `"${seen.get(id)}"` } });
      await load();
      const undo = () => change(id, !active, author, `undo: ${reason}`.slice(0, 400), false);
      tell("good", `${visible(id)} is ${active ? "on" : "off"} now. `, canUndo ? h("button", { type: "button", class: "small", on: { click: undo } }, "Undo") : null);
      focusSwitch(id);
    } catch (error) {
      tell("bad", error.message);
    }
  }

  /** The cards were made again: the switch that was used has the focus as before. */
  function focusSwitch(id) {
    [...list.querySelectorAll("button[data-rule]")].find((one) => one.dataset.rule === id)?.focus();
  }

  function tell(kind, ...children) {
    told.className = `told ${kind}`;
    fill(told, children);
  }

  load();
  // Another person or node may change them meanwhile.
  return watch(() => {
    const now = newest()?.office.version;
    if (version !== null && now !== undefined && now !== version) load();
  });
}

function links(readOnly) {
  if (readOnly) return `${visible(readOnly, 500)}.`;
  return [h("a", { href: "#/edit" }, "Edit them"), " · ", h("a", { href: "#/versions" }, "earlier versions")];
}

function card(kept, ask, readOnly) {
  const { description, ...said } = kept.rule;
  const active = kept.rule.is_active !== false;
  const mode = kept.rule.mode ?? "enforce";
  const badge = (style, text) => h("span", { class: `badge is-${style}` }, theirs(text));
  const named = h("span", { class: "visually-hidden" }, ` ${visible(kept.id)}`);
  return h("article", { class: active ? "card rule-card" : "card rule-card is-disabled" },
    h("header", null,
      h("div", { class: "rule-title" }, h("h2", null, theirs(kept.id)),
        active ? null : badge("off", "disabled"),
        active || mode !== "enforce" ? badge(mode === "enforce" ? "allow" : mode, mode) : null),
      h("div", { class: "actions" },
        h("a", { href: `#/edit?rule=${encodeURIComponent(kept.id)}` }, readOnly ? "View" : "Edit", named.cloneNode(true)),
        h("button", { class: "small", "data-rule": kept.id, disabled: Boolean(readOnly), title: readOnly, on: { click: () => ask(kept, !active) } },
          active ? "Switch off" : "Switch on", named))),
    description ? h("p", null, theirs(description)) : null,
    // Nothing can be changed in the first version: it holds what the rules started with.
    kept.version > 1 ? h("p", { class: "hint" }, `Last changed in version ${kept.version}`) : null,
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
