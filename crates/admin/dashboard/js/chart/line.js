// The chart of decision times: the median, the 90th and the 99th percentile.

import { h, say } from "/dashboard/js/dom.js";
import { micros } from "/dashboard/js/format.js";
import { quantile } from "/dashboard/js/counts.js";
import { framed } from "/dashboard/js/chart/frame.js";
import { roundUp, s } from "/dashboard/js/chart/svg.js";

const LINES = [["p50", 0.5, "line-1"], ["p90", 0.9, "line-2"], ["p99", 0.99, "line-3"]];
const SPAN = 5;

/** The chart; `update(steps)` redraws it. Each point covers a few seconds, because only a sample of
 * the decisions is timed. */
export function latency(seconds) {
  let points = [];
  let at = null;
  const values = LINES.map(() => h("b"));
  const when = h("span");
  const legend = h("ul", { class: "legend" }, LINES.map(([name, , style], i) => h("li", null, sample(style), name, values[i])), h("li", null, when));
  const chart = framed({
    height: 190, seconds, label: micros,
    top: () => roundUp(Math.max(...points.flat().filter((value) => value !== null), 10)),
    steps: () => Math.max(points.length, 1),
    moved: (to) => { at = to; updateLegend(); },
  }, ({ body, x, y }) => {
    LINES.forEach(([, , style], line) => {
      body.append(s("path", { class: style, d: path(points.map((point) => point[line]), x, y) }));
    });
  });
  const updateLegend = () => {
    const point = points.at(at === null ? -1 : -1 - at);
    values.forEach((value, line) => say(value, micros(point?.[line] ?? null)));
    say(when, at ? `${at} s ago` : "");
  };
  const update = (steps) => {
    points = steps.map((_, i) => quantiles(steps.slice(Math.max(i - SPAN + 1, 0), i + 1)));
    updateLegend();
    const words = LINES.map(([name], line) => `${name} ${micros(points.at(-1)?.[line] ?? null)}`).join(", ");
    chart.name(`Decision time over the last ${seconds} seconds. Now: ${words}. Arrow keys move the cursor.`);
    chart.render();
  };
  return { place: h("figure", null, legend, chart.place), update, ended: chart.ended };
}

/** The three percentiles over some steps together. */
export function quantiles(steps) {
  const counts = steps.reduce((all, step) => step.durations.map((number, at) => number + (all[at] ?? 0)), []);
  return LINES.map(([, share]) => (steps.length ? quantile(steps[0].bounds, counts, share) : null));
}

function path(values, x, y) {
  let text = "";
  values.forEach((value, i) => {
    if (value === null) return;
    text += `${text && values[i - 1] !== null ? "L" : "M"}${x(values.length - 1 - i).toFixed(1)},${y(value).toFixed(1)}`;
  });
  return text;
}

const sample = (style) => s("svg", { viewBox: "0 0 16 12", "aria-hidden": "true" }, s("path", { class: style, d: "M0 6h16" }));
