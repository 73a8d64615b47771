// The chart of decisions per second, stacked by verdict.

import { h, fill, say } from "/dashboard/js/dom.js";
import { rate } from "/dashboard/js/format.js";
import { framed } from "/dashboard/js/chart/frame.js";
import { filled, roundUp, s, swatch, weaves } from "/dashboard/js/chart/svg.js";

const BANDS = [
  ["deny", "refused"], ["ban", "banned"], ["warn", "allowed with a warning"], ["shadow", "would be refused (shadow)"], ["allow", "allowed"],
];

/** The chart; `update(steps)` redraws it. */
export function stack(seconds) {
  let steps = [];
  let at = null;
  const values = new Map(BANDS.map(([name]) => [name, h("b")]));
  const when = h("span");
  const legend = h("ul", { class: "legend" },
    BANDS.map(([name, words]) => h("li", null, swatch(name), words, values.get(name))).reverse(), h("li", null, when));
  const total = (step) => Object.values(step.bands).reduce((all, one) => all + one, 0);
  const options = {
    height: 190, seconds, label: rate,
    top: () => roundUp(Math.max(...steps.map(total), 1)),
    steps: () => Math.max(steps.length, 1),
    moved: (to) => { at = to; updateLegend(); },
  };
  const chart = framed(options, ({ body, x, y }) => {
    body.append(weaves("stack"));
    let floor = steps.map(() => 0);
    for (const [name] of BANDS) {
      const ceiling = floor.map((value, i) => value + steps[i].bands[name]);
      if (steps.length > 1) body.append(s("path", { d: area(floor, ceiling, x, y), ...filled("stack", name) }));
      floor = ceiling;
    }
  });
  const updateLegend = () => {
    const step = steps.at(at === null ? -1 : -1 - at);
    for (const [name] of BANDS) say(values.get(name), step ? rate(step.bands[name]) : "–");
    say(when, at ? `${at} s ago` : "");
  };
  const update = (now) => {
    steps = now;
    updateLegend();
    const step = steps.at(-1);
    const words = step ? BANDS.map(([name, word]) => `${rate(step.bands[name])} ${word}`).join(", ") : "nothing yet";
    chart.count(steps.length);
    chart.name(`Decisions a second over the last ${seconds} seconds, stacked by verdict. Now: ${words}. Arrow keys move the cursor.`);
    chart.render();
  };
  const place = h("figure");
  fill(place, legend, chart.place);
  return { place, update, ended: chart.ended };
}

function area(floor, ceiling, x, y) {
  const last = floor.length - 1;
  const point = (value, i) => `${x(last - i).toFixed(1)},${y(value).toFixed(1)}`;
  return `M${ceiling.map(point).join("L")}L${floor.map(point).reverse().join("L")}Z`;
}
