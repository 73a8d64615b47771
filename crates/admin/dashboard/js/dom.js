// Creates DOM elements. Data only ever become text nodes or attribute values, never markup.

/** Creates an element with attributes and children. `on` holds event listeners; attributes that are
 * null, undefined or false are skipped. */
export function h(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else {
      made.setAttribute(key, value === true ? "" : value);
    }
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Replaces all children. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

/** Sets the text only if it differs, to avoid needless redraws and screen-reader announcements. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const LONGEST = 96;
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** Makes untrusted text safe to read: shows invisible and direction-changing characters as codes,
 * and truncates long text. */
export function visible(text, longest = LONGEST) {
  const whole = String(text);
  const cut = whole.length > longest ? `${whole.slice(0, longest)}… (${whole.length} characters)` : whole;
  return cut.replace(HIDDEN, (mark) => `⟨${mark.codePointAt(0).toString(16).padStart(2, "0")}⟩`);
}

/** Untrusted text in an element with isolated text direction, never wider than its container. */
export function untrusted(text, name = "span") {
  return h(name, { class: "untrusted", dir: "auto" }, visible(text));
}

/** A labelled field of a form; `field.input` is the control. */
export function field(label, control) {
  const id = `f-${label.toLowerCase().replace(/[^a-z]+/g, "-")}-${++serial}`;
  control.id = id;
  return Object.assign(h("div", null, h("label", { for: id }, label), control), { input: control });
}

let serial = 0;

/** Labels each cell with its column head; on a phone, cells are stacked and show these labels. */
export function label(body, heads) {
  for (const row of body.rows) {
    [...row.cells].forEach((cell, at) => { cell.dataset.label = heads[at]?.text ?? heads[at] ?? ""; });
  }
}

/** A table with column heads and a caption for screen readers. */
export function table(caption, heads, body) {
  label(body, heads);
  const cells = heads.map((head) => h("th", { scope: "col", class: head.class }, head.text ?? head));
  const hidden = h("caption", null, h("span", { class: "visually-hidden" }, caption));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, hidden, h("thead", null, h("tr", null, cells)), body));
}
