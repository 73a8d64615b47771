// The author and reason fields of every form that changes rules. The name is kept while the page is
// open.

import { field, h } from "/dashboard/js/dom.js";

let name = "";

/** The field for the name of the person who makes the change. */
export function authorField() {
  const made = field("Your name", h("input", { type: "text", maxlength: 100, autocomplete: "name", value: name }));
  made.input.addEventListener("input", () => { name = made.input.value; });
  return made;
}

/** The field for the reason, which is saved with the version. */
export function reasonField(label = "Reason") {
  return field(label, h("input", { type: "text", maxlength: 400, placeholder: "e.g. raise partner limits" }));
}
