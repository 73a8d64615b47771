// A rule's last minute in a line of a table: how often it was asked, and how often it said no.

import { s } from "/dashboard/js/chart/svg.js";

const WIDTH = 120;
const HEIGHT = 26;
const SECONDS = 60;

/** The drawing; `update(list)` takes `{ all, refused }` of each second, oldest first. */
export function spark() {
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const update = (list) => {
    const last = list.slice(-SECONDS);
    const top = Math.max(...last.map((one) => one.all), 1);
    const bar = WIDTH / SECONDS;
    const bars = last.flatMap((one, i) => {
      const x = WIDTH - (last.length - i) * bar;
      const of = (number, style) => {
        const height = (number / top) * HEIGHT;
        return height > 0 ? s("rect", { class: style, x, width: bar - 0.4, y: HEIGHT - height, height }) : null;
      };
      return [of(one.all, "all"), of(one.refused, "refused")];
    });
    svg.replaceChildren(...bars.filter((one) => one));
    svg.setAttribute("aria-label", `last minute: at most ${Math.round(top)} a second`);
  };
  return { svg, update };
}
