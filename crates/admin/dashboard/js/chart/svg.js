// Shared by all charts: SVG elements, round scales, fill patterns, resizing and the cursor.

const NS = "http://www.w3.org/2000/svg";

/** Creates an SVG element with attributes and children. */
export function s(name, attributes, ...children) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The next round number at or above a value, so that the scale stays stable. */
export function roundUp(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** The pattern of each band, in addition to its colour: a path in an 8×8 square. */
const WEAVES = { shadow: "M2 2h.1M6 6h.1", warn: "M0 4h8", deny: "M-2 2l4-4M0 8l8-8M6 10l4-4", ban: "M0 0l8 8M0 8l8-8" };

/** The pattern definitions for one chart; `id` keeps their names unique on the page. */
export function weaves(id) {
  const made = Object.entries(WEAVES).map(([name, path]) => s("pattern", {
    id: `${id}-${name}`, width: 8, height: 8, patternUnits: "userSpaceOnUse",
  }, s("rect", { width: 8, height: 8, class: `band-${name}` }), s("path", { d: path, class: "weave", "stroke-linecap": "round" })));
  return s("defs", null, ...made);
}

/** The attributes that fill a band. */
export const filled = (id, name) => (name in WEAVES ? { fill: `url(#${id}-${name})` } : { class: `band-${name}` });

/** A legend sample of a band. */
export function swatch(name) {
  const id = `swatch-${name}`;
  return s("svg", { viewBox: "0 0 16 12", "aria-hidden": "true" }, weaves(id), s("rect", { width: 16, height: 12, rx: 2, ...filled(id, name) }));
}

/** Calls `draw` whenever the size of `place` changes. Returns a function that stops it. */
export function whenResized(place, draw) {
  const seen = new ResizeObserver(draw);
  seen.observe(place);
  return () => seen.disconnect();
}

/** Lets the user select a step by mouse or arrow keys. Calls `move(at)` with its position from the
 * right, or null. */
export function pointer(svg, width, most, move) {
  let at = null;
  const set = (next) => {
    at = next === null ? null : Math.min(Math.max(next, 0), most() - 1);
    move(at);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    set(Math.round(((box.right - 8 - event.clientX) / (box.width - width)) * (most() - 1)));
  });
  svg.addEventListener("pointerleave", () => set(null));
  svg.addEventListener("blur", () => set(null));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: 1, ArrowRight: -1 }[event.key];
    if (step) {
      event.preventDefault();
      set((at ?? 0) + step);
    } else if (event.key === "Escape") {
      set(null);
    }
  });
}
