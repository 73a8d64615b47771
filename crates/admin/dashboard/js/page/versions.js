// The version history: who changed what, when and why; and rollback.

import { call, readOnlyReason, signed } from "/dashboard/js/api.js";
import { changeRules } from "/dashboard/js/confirm.js";
import { change } from "/dashboard/js/diff.js";
import { authorField, reasonField } from "/dashboard/js/author.js";
import { fill, h, untrusted, visible } from "/dashboard/js/dom.js";
import { date } from "/dashboard/js/format.js";
import { newest } from "/dashboard/js/history.js";

/** Shows the page. */
export function show(main) {
  const list = h("div", { class: "card" });
  const message = h("div", { class: "message", role: "status" });
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Versions"),
    h("p", null, "Each change is a version. Rolling back creates a new one, so nothing is lost.")), message, list);

  async function load() {
    try {
      const [{ body }, readOnly] = await Promise.all([call("GET", "/v1/versions?limit=100"), readOnlyReason()]);
      if (!body.versions.length) {
        fill(list, h("p", { class: "empty" }, none(readOnly)));
        return;
      }
      const head = body.versions[0].version;
      fill(list, body.versions.map((one) => entry(one, head, readOnly ? null : back)));
    } catch (error) {
      showMessage("bad", error.message);
    }
  }

  async function back(version, head, author, reason) {
    try {
      const headers = { ...signed(author || "dashboard", reason || `rolled back to version ${version}`), "if-match": `"${head}"` };
      const { body } = await changeRules("POST", `/v1/versions/${version}/rollback`, { headers });
      showMessage("good", `Version ${body.version} is active; it has the content of version ${version}.`);
      await load();
    } catch (error) {
      showMessage("bad", error.status === 412 ? "Someone else changed the rules in the meantime. Look again before you roll back." : error.message);
    }
  }

  function showMessage(kind, text) {
    message.className = `message ${kind}`;
    fill(message, text);
  }

  load();
}

/** Explains why there are no versions, and how to create the first one. */
function none(readOnly) {
  if (readOnly) return `There are no versions: ${visible(readOnly, 500)}.`;
  const source = newest()?.rule_set.database.split("/").at(-1);
  return [`No versions yet. ${source ? `Rules come from ${visible(source)}; your` : "Your"} first change creates version 1. `, h("a", { href: "#/edit" }, "Edit the rules"), "."];
}

function entry(one, head, back) {
  const inside = h("div");
  const details = h("details", { class: "version", on: { toggle: () => details.open && !inside.firstChild && open() } },
    h("summary", null, h("b", null, `Version ${one.version}`), one.version === head ? h("span", { class: "badge is-allow" }, "active") : null,
      h("span", null, date(one.at)), untrusted(one.author), untrusted(one.reason)), inside);

  async function open() {
    const changes = h("ul");
    fill(inside, changes, one.version === head || !back ? null : rollback());
    try {
      const { body } = await call("GET", `/v1/versions/${one.version}`);
      fill(changes, body.diff.map(change));
    } catch (error) {
      fill(changes, h("li", { class: "message bad" }, error.message));
    }
  }

  function rollback() {
    const [author, reason] = [authorField(), reasonField()];
    const really = h("div", { hidden: true }, h("div", { class: "fields" }, author, reason), h("div", { class: "actions" },
      h("button", { type: "button", class: "main", on: { click: () => back(one.version, head, author.input.value, reason.input.value) } }, `Yes, roll back to version ${one.version}`)));
    const ask = h("button", { type: "button", on: { click: () => { really.hidden = false; ask.hidden = true; author.input.focus(); } } }, `Roll back to version ${one.version}`);
    return h("div", { class: "actions" }, ask, really);
  }

  return details;
}
