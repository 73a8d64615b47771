// What drawings have in common: elements of SVG, a scale with round numbers, patterns, a cursor.

const NS = "http://www.w3.org/2000/svg";

/** An element of SVG with attributes. */
export function s(name, attributes, ...children) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The next round number at or above a value, so that a scale does not jump about. */
export function roundUp(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** How bands look besides their colour: the path of a weave in a square of eight. */
const WEAVES = { shadow: "M2 2h.1M6 6h.1", warn: "M0 4h8", deny: "M-2 2l4-4M0 8l8-8M6 10l4-4", ban: "M0 0l8 8M0 8l8-8" };

/** The patterns of bands, for one drawing; `id` tells drawings apart. */
export function weaves(id) {
  const made = Object.entries(WEAVES).map(([name, path]) => s("pattern", {
    id: `${id}-${name}`, width: 8, height: 8, patternUnits: "userSpaceOnUse",
  }, s("rect", { width: 8, height: 8, class: `band-${name}` }), s("path", { d: path, class: "weave", "stroke-linecap": "round" })));
  return s("defs", null, ...made);
}

/** How a band is filled. */
export const filled = (id, name) => (name in WEAVES ? { fill: `url(#${id}-${name})` } : { class: `band-${name}` });

/** A small square that shows how a band looks. */
export function swatch(name) {
  const id = `swatch-${name}`;
  return s("svg", { viewBox: "0 0 16 12", "aria-hidden": "true" }, weaves(id), s("rect", { width: 16, height: 12, rx: 2, ...filled(id, name) }));
}

/** Draws again whenever the width of a place changes; gives back what ends that. */
export function whenResized(place, draw) {
  const seen = new ResizeObserver(draw);
  seen.observe(place);
  return () => seen.disconnect();
}

/** Lets a reader point at an instant, by mouse or arrow keys: `move(at)` with its place from the right, or null. */
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
