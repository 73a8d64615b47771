// Every change that was made: who, when, why, what; and going back.

import { call, signed } from "/dashboard/js/api.js";
import { change } from "/dashboard/js/diff.js";
import { field, fill, h, theirs } from "/dashboard/js/dom.js";
import { date } from "/dashboard/js/format.js";

/** Shows the page. */
export function show(main) {
  const list = h("div", { class: "card" });
  const told = h("div", { class: "told", role: "status" });
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Versions"),
    h("p", null, "Each change is a version. Going back makes a new one, so nothing is lost.")), told, list);

  async function load() {
    try {
      const { body } = await call("GET", "/v1/versions?limit=100");
      if (!body.versions.length) {
        fill(list, h("p", { class: "empty" }, "Nothing was changed yet: the rules are those of the file. The first change makes versions of them. ", h("a", { href: "#/edit" }, "Change something"), "."));
        return;
      }
      const head = body.versions[0].version;
      fill(list, body.versions.map((one) => entry(one, head, back)));
    } catch (error) {
      tell("bad", error.message);
    }
  }

  async function back(version, head, author, reason) {
    try {
      const headers = { ...signed(author || "dashboard", reason || `went back to version ${version}`), "if-match": `"${head}"` };
      const { body } = await call("POST", `/v1/versions/${version}/rollback`, { headers });
      tell("good", `Version ${body.version} is in force; it says what version ${version} said.`);
      await load();
    } catch (error) {
      tell("bad", error.status === 412 ? "Somebody else has changed the rules meanwhile. Look again before you go back." : error.message);
    }
  }

  function tell(kind, text) {
    told.className = `told ${kind}`;
    fill(told, text);
  }

  load();
}

function entry(one, head, back) {
  const inside = h("div");
  const details = h("details", { class: "version", on: { toggle: () => details.open && !inside.firstChild && open() } },
    h("summary", null, h("b", null, `Version ${one.version}`), one.version === head ? h("span", { class: "badge is-allow" }, "in force") : null,
      h("span", null, date(one.at)), theirs(one.author), theirs(one.reason)), inside);

  async function open() {
    const changes = h("ul");
    fill(inside, changes, one.version === head ? null : going());
    try {
      const { body } = await call("GET", `/v1/versions/${one.version}`);
      fill(changes, body.diff.map(change));
    } catch (error) {
      fill(changes, h("li", { class: "told bad" }, error.message));
    }
  }

  function going() {
    const author = field("Who", h("input", { type: "text", maxlength: 100 }));
    const reason = field("Why", h("input", { type: "text", maxlength: 400 }));
    const really = h("div", { hidden: true }, h("div", { class: "fields" }, author, reason), h("div", { class: "actions" },
      h("button", { type: "button", class: "main", on: { click: () => back(one.version, head, author.input.value, reason.input.value) } }, `Yes, go back to version ${one.version}`)));
    const ask = h("button", { type: "button", on: { click: () => { really.hidden = false; ask.hidden = true; author.input.focus(); } } }, `Go back to version ${one.version}`);
    return h("div", { class: "actions" }, ask, really);
  }

  return details;
}
