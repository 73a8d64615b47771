// The frame of a chart over time: a scale on the left, seconds below, a cursor, and the plot area.

import { h } from "/dashboard/js/dom.js";
import { pointer, s, whenResized } from "/dashboard/js/chart/svg.js";

const LEFT = 46;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;

/** A chart over the last `options.seconds`. `draw(plot)` adds elements to `plot.body`; `plot.x(at)`
 * is the position of the step `at` steps before the newest, `plot.y(value)` that of a value.
 * `options.top()` returns the highest value of the scale and `options.label(value)` its text.
 * `options.moved(at)` is called when the cursor moves. */
export function framed(options, draw) {
  const svg = s("svg", { role: "img", tabindex: "0", height: options.height });
  const place = h("div", { class: "chart" }, svg);
  let cursor = null;
  const render = () => {
    const width = Math.max(place.clientWidth, 120);
    const inner = { width: width - LEFT - RIGHT, height: options.height - TOP - BOTTOM };
    const top = options.top();
    const x = (at) => LEFT + inner.width * (1 - at / (options.seconds - 1));
    const y = (value) => TOP + inner.height * (1 - Math.min(value / top, 1));
    const body = s("g");
    svg.setAttribute("viewBox", `0 0 ${width} ${options.height}`);
    svg.replaceChildren(...grid(top, width, y, options), body);
    draw({ body, x, y, seconds: options.seconds });
    if (cursor !== null) svg.append(s("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: TOP, y2: TOP + inner.height }));
  };
  pointer(svg, LEFT + RIGHT, options.steps, (at) => {
    cursor = at;
    options.moved(at);
    render();
  });
  const ended = whenResized(place, render);
  const count = (steps) => svg.setAttribute("data-steps", steps);
  return { place, render, ended, count, name: (text) => svg.setAttribute("aria-label", text) };
}

function grid(top, width, y, options) {
  const lines = [0, 0.5, 1].flatMap((share) => [
    s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(top * share), y2: y(top * share) }),
    s("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, options.label(top * share)),
  ]);
  const bottom = options.height - 5;
  const times = [s("text", { x: LEFT, y: bottom }, `${options.seconds} s ago`), s("text", { x: width - RIGHT, y: bottom, "text-anchor": "end" }, "now")];
  return [...lines, ...times];
}
