// The rules as one document: change it, see whether it is right and what it would change, and put it into force.

import { call, signed } from "/dashboard/js/api.js";
import { change } from "/dashboard/js/diff.js";
import { field, fill, h, visible } from "/dashboard/js/dom.js";
import { count, rate } from "/dashboard/js/format.js";
import { past } from "/dashboard/js/history.js";

/** Shows the page. */
export function show(main) {
  const text = field("Rules document (YAML)", h("textarea", { spellcheck: "false", autocomplete: "off", autocapitalize: "off" }));
  const author = field("Who", h("input", { type: "text", maxlength: 100, placeholder: "your name" }));
  const reason = field("Why", h("input", { type: "text", maxlength: 400, placeholder: "what is on record" }));
  const told = h("div", { class: "told", role: "status" });
  const about = h("p");
  // Neither is of use before the document is there.
  const check = h("button", { type: "button", disabled: true, on: { click: () => validate() } }, "Check and preview");
  const apply = h("button", { type: "button", class: "main", disabled: true, on: { click: () => put() } }, "Apply");
  const again = h("button", { type: "button", on: { click: () => load() } }, "Start over");
  let seen = null;
  text.input.readOnly = true;
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Edit the rules"), about),
    h("div", { class: "two edit" },
      h("section", { class: "card" }, text, h("div", { class: "actions" }, check, again)),
      h("section", { class: "card" }, h("h2", null, "What it would change"), told,
        h("div", { class: "fields" }, author, reason),
        h("div", { class: "actions" }, apply, h("span", { class: "hint" }, "Only what was checked is applied.")))));
  text.input.addEventListener("input", () => { apply.disabled = true; });
  text.input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) validate();
  });

  function tell(kind, ...children) {
    told.className = `told ${kind}`;
    fill(told, children);
  }

  async function load() {
    try {
      const { body, version } = await call("GET", "/v1/document?format=yaml");
      text.input.value = body;
      seen = version;
      text.input.readOnly = false;
      check.disabled = false;
      apply.disabled = true;
      fill(about, `Version ${visible(version.replaceAll('"', ""))} is in force. Nothing changes until you apply; a version can be gone back to.`);
      tell("", "Change something, then check it (Ctrl-Enter).");
    } catch (error) {
      tell("bad", error.message);
    }
  }

  async function validate() {
    if (check.disabled) return;
    apply.disabled = true;
    try {
      const { body } = await call("POST", "/v1/validate", { body: text.input.value, text: true });
      if (!body.valid) return tell("bad", flaws(body.errors, text.input));
      if (!body.changes.length) return tell("mild", "It is valid, and says what is in force already.");
      tell("good", effect(body));
      apply.disabled = false;
    } catch (error) {
      tell("bad", error.message);
    }
  }

  async function put() {
    try {
      const headers = { ...signed(author.input.value || "dashboard", reason.input.value || "edited in the dashboard"), "if-match": seen };
      const { body } = await call("PUT", "/v1/document", { body: text.input.value, text: true, headers });
      await load();
      tell("good", h("p", null, `Version ${body.version} is in force. `, h("a", { href: "#/versions" }, "See it, or go back.")));
    } catch (error) {
      const outdated = error.status === 412;
      tell("bad", outdated ? "Somebody else has changed the rules meanwhile. Copy what you wrote, start over, and make it again on theirs." : error.message);
      if (error.problem?.errors) tell("bad", flaws(error.problem.errors, text.input));
    }
  }

  load().then(() => {
    const asked = new URLSearchParams(location.hash.split("?")[1]).get("rule");
    const at = text.input.value.split("\n").findIndex((line) => line.trim() === `- id: ${asked}`);
    if (at >= 0) go(text.input, at + 1);
  });
}

function flaws(errors, area) {
  return h("ul", null, h("li", null, h("b", null, errors.length === 1 ? "One thing is wrong:" : `${errors.length} things are wrong:`)),
    errors.map((flaw) => {
      const at = Number(/line (\d+)/.exec(flaw.field)?.[1]);
      const where = visible([flaw.kind, flaw.id, flaw.field].filter((part) => part).join(" "));
      return h("li", null, at ? h("button", { type: "button", class: "small", on: { click: () => go(area, at) } }, where) : h("b", null, where),
        ` ${visible(flaw.message, 400)}`, flaw.found ? ` Found: ${visible(flaw.found)}.` : "", flaw.hint ? ` Write: ${visible(flaw.hint, 300)}` : "");
    }));
}

/** Selects a line of the document. */
function go(area, number) {
  const lines = area.value.split("\n");
  const from = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(from, from + (lines[number - 1]?.length ?? 0));
  area.scrollTop = Math.max(0, (number - 6) * (area.scrollHeight / lines.length));
}

function effect({ changes, affects }) {
  const steps = past();
  const seconds = steps.reduce((all, step) => all + step.seconds, 0);
  const traffic = affects.rules.map((id) => {
    const of = (names) => steps.reduce((all, step) => all + names.reduce((sum, name) => sum + (step.rules.get(id)?.verdicts[name] ?? 0), 0), 0);
    const [all, refused] = [of(["allow", "deny", "shadow_deny", "warn", "ban"]), of(["deny", "ban"])];
    return h("li", null, h("b", null, visible(id)), all
      ? ` governs ${rate(all / seconds)} decisions a second now, of which it refuses ${rate(refused / seconds)}.` : " governed no decision in the last two minutes.");
  });
  return [h("p", null, h("b", null, "It is valid. "), `${changes.length} ${changes.length === 1 ? "change" : "changes"}:`),
    h("ul", null, changes.map(change)),
    traffic.length ? h("p", null, h("b", null, "Whom that concerns")) : null,
    h("ul", null, traffic, affects.overrides ? h("li", null, `${count(affects.overrides)} keys with numbers of their own, among them ${visible(affects.first_overrides.slice(0, 5).join(", "), 300)}.`) : null),
    h("p", { class: "hint" }, "To see the effect before anybody is refused, apply it with mode: shadow first.")];
}
