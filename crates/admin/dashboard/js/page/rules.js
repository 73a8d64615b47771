// The list of rules: the definition of each, the version that changed it last, and its on/off
// button.

import { call, readOnlyReason, signed } from "/dashboard/js/api.js";
import { confirm } from "/dashboard/js/confirm.js";
import { fill, h, say, untrusted, visible } from "/dashboard/js/dom.js";
import { count, keys, units } from "/dashboard/js/format.js";
import { newest, watch } from "/dashboard/js/history.js";

/** Shows the page. */
export function show(main) {
  const list = h("div");
  const message = h("div", { class: "message", role: "status" });
  const about = h("p");
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Rules"), about), message, list);
  let version = null;
  // The displayed version of each rule, sent as If-Match: a rule that changed since then is not
  // switched.
  let seen = new Map();
  // Update what this node holds of each rule with every tick.
  let refreshers = [];

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
      refreshers = rules.filter((rule) => rule.consistency).map((rule) => counting(rule));
      const lines = new Map(refreshers.map((one) => [one.id, one.element]));
      refreshers.forEach((one) => one.update(newest()?.process.holdings, newest()?.process.regions));
      const used = list.contains(document.activeElement) ? document.activeElement.dataset.rule : undefined;
      fill(list, rules.length ? h("div", { class: "rule-cards" }, rules.map((rule) => card(rule, lines.get(rule.id), confirmSwitch, readOnly)))
        : h("p", { class: "empty" }, "There are no rules, so every request is allowed. ", readOnly ? null : h("a", { href: "#/edit" }, "Write the first one")));
      if (used !== undefined) focusSwitch(used);
    } catch (error) {
      showMessage("bad", error.message);
    }
  }

  /** Switches a rule on or off after the user has confirmed it. */
  async function confirmSwitch(rule, active) {
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
      showMessage("good", `${visible(id)} is ${active ? "on" : "off"} now. `, canUndo ? h("button", { type: "button", class: "small", on: { click: undo } }, "Undo") : null);
      focusSwitch(id);
    } catch (error) {
      showMessage("bad", error.message);
    }
  }

  /** Restores the focus to the button that was used, because the cards were recreated. */
  function focusSwitch(id) {
    [...list.querySelectorAll("button[data-rule]")].find((one) => one.dataset.rule === id)?.focus();
  }

  function showMessage(kind, ...children) {
    message.className = `message ${kind}`;
    fill(message, children);
  }

  load();
  // Reload when another user or node changes the rules.
  return watch(() => {
    const now = newest()?.rule_set.version;
    refreshers.forEach((one) => one.update(newest()?.process.holdings, newest()?.process.regions));
    if (version !== null && now !== undefined && now !== version) load();
  });
}

function links(readOnly) {
  if (readOnly) return `${visible(readOnly[0].toUpperCase() + readOnly.slice(1), 500)}.`;
  return [h("a", { href: "#/edit" }, "Edit them"), " · ", h("a", { href: "#/versions" }, "earlier versions")];
}

/** How a rule counts, its bound, and what this node holds; `update` refreshes the last. */
function counting({ id, consistency: { mode, description, bound, node, regions } }) {
  const held = h("dd");
  const [borrowed, lent] = [h("dd"), h("dd")];
  const element = h("dl", { class: "facts" }, h("dt", null, "Counted"), h("dd", null, untrusted(description)),
    h("dt", null, "Bound"), h("dd", null, untrusted(bound)),
    regions ? [h("dt", null, "Share"), h("dd", null, untrusted(shares(regions)))] : null,
    regions?.borrow ? [h("dt", null, "Borrowed"), borrowed, h("dt", null, "Lent"), lent] : null,
    node ? [h("dt", null, "This node"), held] : null);
  const update = (holdings, others) => {
    if (regions?.borrow) {
      say(borrowed, describeBorrowed(regions.borrow, others, id));
      say(lent, describeLent(others, id));
    }
    if (!node) return;
    const now = holdings ? holdings.rules[id] ?? { counters: 0, units: 0 } : node;
    say(held, `${keys(now.counters)}, ${units(now.units)} ${mode === "leased" ? "to spend" : "not reported yet"}`);
  };
  return { id, element, update };
}

/** The share of this region and those of the others. */
function shares({ region, shares: all }) {
  const others = Object.entries(all).map(([name, share]) => `${name} ${share}`).join(", ");
  return `${all[region]} in region ${region} (${others})`;
}

/** What this node has of other regions, and which of them lend now. */
function describeBorrowed(borrow, others, id) {
  const now = others?.rules[id] ?? { held: 0, spent: 0, refused_with_room: 0 };
  const state = (name) => others?.lenders.find((one) => one.region === name)?.state ?? "no store";
  const from = borrow.lenders.map(({ region }) => `${region} ${state(region)}`).join(", ") || "no other region";
  return `from ${from}; by this node: ${units(now.held)} held, ${units(now.spent)} spent, ${count(now.refused_with_room)} refused while another region had room`;
}

/** What the nodes of other regions borrowed of this region's share, as they reported. */
function describeLent(others, id) {
  const lent = Object.entries(others?.rules[id]?.lent ?? {}).filter(([, { granted }]) => granted > 0);
  const by = lent.map(([region, { granted, returned }]) => `to ${region} ${units(granted)}, of which ${count(returned)} returned`);
  return by.join("; ") || "nothing yet";
}

function card(entry, counted, confirmSwitch, readOnly) {
  const { description, ...fields } = entry.rule;
  const active = entry.rule.is_active !== false;
  const mode = entry.rule.mode ?? "enforce";
  const badge = (style, text) => h("span", { class: `badge is-${style}` }, untrusted(text));
  const named = h("span", { class: "visually-hidden" }, ` ${visible(entry.id)}`);
  return h("article", { class: active ? "card rule-card" : "card rule-card is-disabled" },
    h("header", null,
      h("div", { class: "rule-title" }, h("h2", null, untrusted(entry.id)),
        active ? null : badge("off", "disabled"),
        active || mode !== "enforce" ? badge(mode === "enforce" ? "allow" : mode, mode) : null),
      h("div", { class: "actions" },
        h("a", { href: `#/edit?rule=${encodeURIComponent(entry.id)}` }, readOnly ? "View" : "Edit", named.cloneNode(true)),
        h("button", { class: "small", "data-rule": entry.id, disabled: Boolean(readOnly), title: readOnly, on: { click: () => confirmSwitch(entry, !active) } },
          active ? "Switch off" : "Switch on", named))),
    description ? h("p", null, untrusted(description)) : null,
    // Version 1 holds the initial rules, so it is not shown as a change.
    entry.version > 1 ? h("p", { class: "hint" }, `Last changed in version ${entry.version}`) : null,
    counted,
    h("pre", { tabindex: "0", "aria-label": `Definition of ${visible(entry.id)}` }, lines(fields)));
}

/** A rule as text, one line for each field. */
function lines(fields) {
  const text = Object.entries(fields).filter(([name]) => name !== "id")
    .map(([name, value]) => `${name}: ${flow(value)}`).join("\n");
  return visible(text.replaceAll("\n", "\u2424"), 2000).replaceAll("\u2424", "\n");
}

/** A value in YAML flow style, on one line. */
function flow(value) {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{ ${Object.entries(value).map(([name, inner]) => `${name}: ${flow(inner)}`).join(", ")} }`;
  return typeof value === "string" && /^[\w./:%-][\w ./:%-]*$/.test(value) ? value : JSON.stringify(value);
}
