// Shows the difference between two values as removed (−) and added (+) lines.

import { h, untrusted, visible } from "/dashboard/js/dom.js";

/** A list of lines: `− path: value` for removed values, `+ path: value` for added ones. */
export function difference(before, after) {
  const [was, is] = [flat(before), flat(after)];
  const paths = [...new Set([...was.keys(), ...is.keys()])];
  const changed = paths.filter((path) => was.get(path) !== is.get(path));
  return h("ul", { class: "diff" }, changed.flatMap((path) => [
    was.has(path) ? line("gone", "−", "removed", path, was.get(path)) : null,
    is.has(path) ? line("come", "+", "added", path, is.get(path)) : null,
  ]));
}

function line(style, sign, word, path, value) {
  return h("li", { class: style }, h("span", { "aria-hidden": "true" }, `${sign} `), h("span", { class: "visually-hidden" }, `${word}: `),
    visible(`${path ? `${path}: ` : ""}${value}`, 400));
}

function flat(value, path = "", found = new Map()) {
  if (value !== null && typeof value === "object" && Object.keys(value).length > 0) {
    for (const [name, inner] of Object.entries(value)) flat(inner, path ? `${path}.${name}` : name, found);
  } else if (value !== null && value !== undefined) {
    found.set(path, JSON.stringify(value));
  }
  return found;
}

/** One changed entry and its difference. */
export function change(one) {
  const word = one.before === null ? "new" : one.after === null ? "removed" : "changed";
  const inner = (value) => (one.kind === "rule" && value ? value.rule ?? value : value);
  return h("li", null, h("b", null, `${one.kind} `, untrusted(one.id)), ` ${word}`, difference(inner(one.before), inner(one.after)));
}
