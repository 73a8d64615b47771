// A text area with line numbers. Lines do not wrap, so that numbers stay aligned with their lines.

import { field, h } from "/dashboard/js/dom.js";

/** The editor: `place` is the element, `input` the text area. */
export function editor(label) {
  const input = h("textarea", { spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off" });
  const numbers = h("pre", { class: "line-numbers", "aria-hidden": "true" });
  const place = field(label, input);
  let marked = new Set();
  place.append(h("div", { class: "editor" }, numbers, input));

  /** Updates the line numbers; marked lines have a sign before the number. */
  function number() {
    const count = input.value.split("\n").length;
    const line = (_, at) => `${marked.has(at + 1) ? "✕ " : ""}${at + 1}`;
    numbers.textContent = Array.from({ length: count }, line).join("\n");
    numbers.scrollTop = input.scrollTop;
  }

  /** Replaces the text and clears all marks. */
  function set(text) {
    input.value = text;
    mark([]);
  }

  /** Marks exactly these lines. */
  function mark(lines) {
    marked = new Set(lines);
    number();
  }

  /** Selects a line and scrolls to it. */
  function go(line) {
    const lines = input.value.split("\n");
    const from = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    input.focus();
    input.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
    input.scrollTop = Math.max(0, (line - 6) * (input.scrollHeight / lines.length));
    input.scrollLeft = 0;
  }

  input.addEventListener("input", number);
  input.addEventListener("scroll", () => { numbers.scrollTop = input.scrollTop; });
  number();
  return { place, input, set, mark, go };
}
