// Making elements. Whatever comes from data becomes a text node or an attribute value, never markup.

/** An element with attributes (`on` has listeners, nothing is set for null) and children. */
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

/** Puts other children in place of those there are. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

/** Sets text only where it differs, so that nothing is drawn or read out anew for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const LONGEST = 96;
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** Text of others as a reader can see it: what is invisible or turns the direction is named, what is long is cut. */
export function visible(text, longest = LONGEST) {
  const whole = String(text);
  const cut = whole.length > longest ? `${whole.slice(0, longest)}… (${whole.length} characters)` : whole;
  return cut.replace(HIDDEN, (mark) => `⟨${mark.codePointAt(0).toString(16).padStart(2, "0")}⟩`);
}

/** Text of others, in its own direction and never wider than its place. */
export function theirs(text, name = "span") {
  return h(name, { class: "theirs", dir: "auto" }, visible(text));
}

/** A labelled field of a form; `field.input` is the control. */
export function field(label, control) {
  const id = `f-${label.toLowerCase().replace(/[^a-z]+/g, "-")}-${++serial}`;
  control.id = id;
  return Object.assign(h("div", null, h("label", { for: id }, label), control), { input: control });
}

let serial = 0;

/** Names each cell by its column: on a phone cells stand below each other, with these names. */
export function label(body, heads) {
  for (const row of body.rows) {
    [...row.cells].forEach((cell, at) => { cell.dataset.label = heads[at]?.text ?? heads[at] ?? ""; });
  }
}

/** A table with a caption that only readers of screens need, from heads and rows of cells. */
export function table(caption, heads, body) {
  label(body, heads);
  const cells = heads.map((head) => h("th", { scope: "col", class: head.class }, head.text ?? head));
  const hidden = h("caption", null, h("span", { class: "visually-hidden" }, caption));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, hidden, h("thead", null, h("tr", null, cells)), body));
}
