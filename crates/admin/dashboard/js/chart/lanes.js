// Draws one algorithm's lane: a bar for each allowed request, a cross below for each refused one, a
// later bar for each delayed one; the remaining quota is in the background.

import { s } from "/dashboard/js/chart/svg.js";

const WIDTH = 760;
const HEIGHT = 84;
const BASE = 58;

/** The drawing of a lane; `label` describes it for screen readers. */
export function lane({ decisions, left, limit }, arrivals, spanMs, windowMs, label) {
  const x = (ms) => 4 + ((WIDTH - 8) * ms) / spanMs;
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (let at = 0; at <= spanMs; at += windowMs) svg.append(s("line", { class: "window", x1: x(at), x2: x(at), y1: 0, y2: HEIGHT }));
  svg.append(...remaining(left, limit, spanMs, x));
  decisions.forEach((decision, at) => svg.append(...mark(decision, arrivals[at], x)));
  return svg;
}

function remaining(left, limit, spanMs, x) {
  const top = Math.max(limit, ...left);
  const points = left.map((number, at) => `${x((spanMs * at) / (left.length - 1)).toFixed(1)},${(BASE - (number / top) * (BASE - 6)).toFixed(1)}`);
  const line = `M${points.join("L")}`;
  return [s("path", { class: "left", d: `${line}L${x(spanMs)},${BASE}L${x(0)},${BASE}Z` }), s("path", { class: "left-line", d: line })];
}

function mark(decision, at, x) {
  if (!decision.allowed) {
    const [cx, cy] = [x(at), BASE + 14];
    return [s("path", { class: "refused", d: `M${cx - 3},${cy - 4}l6,8m0,-8l-6,8` })];
  }
  if (!decision.delay_ms) return [s("rect", { class: "passed", x: x(at) - 1.5, width: 3, y: BASE - 26, height: 26 })];
  const leaves = at + decision.delay_ms;
  return [
    s("line", { class: "wait", x1: x(at), x2: x(leaves), y1: BASE + 4, y2: BASE }),
    s("rect", { class: "held", x: x(leaves) - 1.5, width: 3, y: BASE - 26, height: 26 }),
  ];
}
