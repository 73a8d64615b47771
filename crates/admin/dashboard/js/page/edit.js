// Edits the rules as one document: check it, preview the changes, apply it.

import { call, readOnlyReason, signed } from "/dashboard/js/api.js";
import { authorField, reasonField } from "/dashboard/js/author.js";
import { changeRules } from "/dashboard/js/confirm.js";
import { change } from "/dashboard/js/diff.js";
import { fill, h, visible } from "/dashboard/js/dom.js";
import { editor } from "/dashboard/js/editor.js";
import { count, rate } from "/dashboard/js/format.js";
import { past } from "/dashboard/js/history.js";

/** Shows the page. */
export function show(main) {
  const text = editor("Rules document (YAML)");
  const [author, reason] = [authorField(), reasonField()];
  const message = h("div", { class: "message", role: "status" });
  const about = h("p");
  // Both buttons are disabled until the document is loaded.
  const check = h("button", { type: "button", class: "main", disabled: true, on: { click: () => validate() } }, "Check and preview");
  const apply = h("button", { type: "button", disabled: true, on: { click: () => put() } }, "Apply");
  const again = h("button", { type: "button", on: { click: () => load() } }, "Start over");
  let seen = null;
  let readOnly = null;
  text.input.readOnly = true;
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Edit the rules"), about),
    h("div", { class: "two edit" },
      h("section", { class: "card" }, text.place, h("div", { class: "actions" }, check, again, h("span", { class: "hint" }, "Ctrl-Enter checks."))),
      h("section", { class: "card" }, h("h2", null, "Preview"), message,
        h("div", { class: "fields" }, author, reason),
        h("div", { class: "actions" }, apply, h("span", { class: "hint" }, "Apply what you have checked.")))));
  text.input.addEventListener("input", () => allowApply(false));
  text.input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) validate();
  });

  /** Highlights the button for the next step: first check, then apply. */
  function allowApply(allowed) {
    apply.disabled = !allowed;
    apply.classList.toggle("main", allowed);
    check.classList.toggle("main", !allowed);
  }

  function showMessage(kind, ...children) {
    message.className = `message ${kind}`;
    fill(message, children);
  }

  async function load() {
    try {
      readOnly = await readOnlyReason();
      const { body, version } = await call("GET", "/v1/document?format=yaml");
      text.set(body);
      seen = version;
      text.input.readOnly = false;
      check.disabled = false;
      allowApply(false);
      fill(about, `Version ${visible(version.replaceAll('"', ""))} is active. Nothing changes until you apply; you can roll back to any version.`);
      showMessage(readOnly ? "mild" : "", readOnly ? `You can check a document here, but not apply it: ${visible(readOnly, 500)}.` : "Edit the document, then check it.");
    } catch (error) {
      showMessage("bad", error.message);
    }
  }

  async function validate() {
    if (check.disabled) return;
    allowApply(false);
    try {
      const { body } = await call("POST", "/v1/validate", { body: text.input.value, text: true });
      text.mark(body.valid ? [] : body.errors.map(lineOf));
      if (!body.valid) return showMessage("bad", flaws(body.errors, text));
      if (!body.changes.length) return showMessage("mild", "The document is valid and changes nothing.");
      showMessage("good", effect(body));
      allowApply(!readOnly);
    } catch (error) {
      showMessage("bad", error.message);
    }
  }

  async function put() {
    try {
      const headers = { ...signed(author.input.value || "dashboard", reason.input.value || "edited in the dashboard"), "if-match": seen };
      const { body } = await changeRules("PUT", "/v1/document", { body: text.input.value, text: true, headers });
      await load();
      reason.input.value = "";
      showMessage("good", h("p", null, `Version ${body.version} is active. `, h("a", { href: "#/versions" }, "See it, or roll back.")));
    } catch (error) {
      const outdated = error.status === 412;
      showMessage("bad", outdated ? "Someone else changed the rules in the meantime. Copy your text, start over, and make the change again." : error.message);
      if (error.problem?.errors) showMessage("bad", flaws(error.problem.errors, text));
    }
  }

  load().then(() => {
    const ruleId = new URLSearchParams(location.hash.split("?")[1]).get("rule");
    const at = text.input.value.split("\n").findIndex((line) => line.trim() === `- id: ${ruleId}`);
    if (at >= 0) text.go(at + 1);
  });
}

/** The line that an error cites; 0 if it cites none. */
const lineOf = (flaw) => Number(/line (\d+)/.exec(flaw.field)?.[1] ?? 0);

function flaws(errors, text) {
  return h("ul", null, h("li", null, h("b", null, errors.length === 1 ? "1 error:" : `${errors.length} errors:`)),
    errors.map((flaw) => {
      const at = lineOf(flaw);
      const where = visible([flaw.kind, flaw.id, flaw.field].filter((part) => part).join(" "));
      return h("li", null, at ? h("button", { type: "button", class: "small", on: { click: () => text.go(at) } }, where) : h("b", null, where),
        ` ${visible(flaw.message, 400)}`, flaw.found ? `, found ${visible(flaw.found)}.` : ".", flaw.hint ? ` Write: ${visible(flaw.hint, 300)}` : "");
    }));
}

function effect({ changes, affects }) {
  const steps = past();
  const seconds = steps.reduce((all, step) => all + step.seconds, 0);
  const traffic = affects.rules.map((id) => {
    const of = (names) => steps.reduce((all, step) => all + names.reduce((sum, name) => sum + (step.rules.get(id)?.verdicts[name] ?? 0), 0), 0);
    const [all, refused] = [of(["allow", "deny", "shadow_deny", "warn", "ban"]), of(["deny", "ban"])];
    return h("li", null, h("b", null, visible(id)), all
      ? ` decides ${rate(all / seconds)} requests/s now and refuses ${rate(refused / seconds)} of them.` : " decided no request in the last two minutes.");
  });
  return [h("p", null, h("b", null, "The document is valid. "), `${changes.length} ${changes.length === 1 ? "change" : "changes"}:`),
    h("ul", null, changes.map(change)),
    traffic.length ? h("p", null, h("b", null, "Affected traffic")) : null,
    h("ul", null, traffic, affects.overrides ? h("li", null, `${count(affects.overrides)} keys with an override, among them ${visible(affects.first_overrides.slice(0, 5).join(", "), 300)}.`) : null),
    h("p", { class: "hint" }, "To see the effect before any request is refused, apply the rule with mode: shadow first.")];
}
