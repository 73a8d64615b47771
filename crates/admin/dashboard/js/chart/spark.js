// A sparkline for a table row: a rule's requests and refusals in the last minute.

import { s } from "/dashboard/js/chart/svg.js";

const WIDTH = 120;
const HEIGHT = 26;
const SECONDS = 60;

/** The sparkline; `update(list)` takes `{ all, refused }` for each second, oldest first. */
export function spark() {
  const [all, refused] = ["all", "refused"].map((style) => s("path", { class: style }));
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" }, all, refused);
  const update = (list) => {
    const last = list.slice(-SECONDS);
    const top = Math.max(...last.map((one) => one.all), 1);
    const bars = (of) => last.map((one, at) => bar(last.length - at, of(one) / top)).join("");
    all.setAttribute("d", bars((one) => one.all));
    refused.setAttribute("d", bars((one) => one.refused));
    svg.setAttribute("aria-label", `last minute: at most ${Math.round(top)} per second`);
  };
  return { svg, update };
}

/** The path segment of one second's bar, counted from the right; empty for a height of 0. */
function bar(fromRight, share) {
  if (!(share > 0)) return "";
  const [width, height] = [WIDTH / SECONDS, (share * HEIGHT).toFixed(1)];
  return `M${WIDTH - fromRight * width},${HEIGHT}v-${height}h${width - 0.4}v${height}z`;
}
