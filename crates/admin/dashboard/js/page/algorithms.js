// Compares the algorithms: the server simulates each of them on the same traffic.

import { about } from "/dashboard/js/algorithms.js";
import { call } from "/dashboard/js/api.js";
import { lane } from "/dashboard/js/chart/lanes.js";
import { s } from "/dashboard/js/chart/svg.js";
import { field, fill, h } from "/dashboard/js/dom.js";
import { arrivals, PATTERNS } from "/dashboard/js/traffic.js";

/** Shows the page. */
export function show(main) {
  const number = (value) => h("input", { type: "number", min: 1, max: 100, value });
  const requests = number(10);
  const burst = h("input", { type: "number", min: 1, max: 100, placeholder: "same as the limit" });
  const windows = h("select", null, [1, 10, 60].map((seconds) => h("option", { value: seconds }, `${seconds} s`)));
  const pattern = h("select", null, Object.keys(PATTERNS).map((name) => h("option", null, name)));
  const lanes = h("div", { class: "lane-grid" });
  const note = h("p", { class: "hint", role: "status" });
  const controls = h("form", { class: "fields", on: { input: () => compare(), submit: (event) => event.preventDefault() } },
    field("Requests", requests), field("Window", windows), field("Burst (buckets only)", burst), field("Traffic", pattern));
  fill(main, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Algorithms"),
    h("p", null, "The server runs each algorithm on the same simulated requests. No quota is used.")),
  h("div", { class: "stack" }, h("section", { class: "card" }, controls, note, legend()), lanes));
  let latest = 0;

  async function compare() {
    const turn = ++latest;
    const [limit, seconds] = [Number(requests.value), Number(windows.value)];
    const list = arrivals(pattern.value, Math.min(Math.max(limit, 1), 100), seconds * 1000);
    try {
      const { body } = await call("POST", "/v1/compare", { body: { requests: limit, window_s: seconds, burst: burst.value ? Number(burst.value) : null, arrivals_ms: list } });
      if (turn !== latest) return;
      const sorted = [...list].sort((a, b) => a - b);
      fill(note, `${PATTERNS[pattern.value].about} ${list.length} requests over ${body.span_ms / 1000} s.`);
      fill(lanes, body.lanes.map((one) => shown(one, sorted, body.span_ms, seconds * 1000, limit)));
    } catch (error) {
      if (turn === latest) fill(note, h("span", { class: "wrong" }, error.message));
    }
  }
  compare();
}

function legend() {
  const sample = (...shapes) => s("svg", { viewBox: "0 0 16 12", "aria-hidden": "true" }, ...shapes);
  return h("ul", { class: "legend lane-legend" },
    h("li", null, sample(s("rect", { class: "band-allow", x: 6, width: 4, height: 12 })), "allowed"),
    h("li", null, sample(s("path", { class: "mark-refused", d: "M4 2l8 8m0-8l-8 8" })), "refused"),
    h("li", null, sample(s("rect", { class: "band-warn", x: 6, width: 4, height: 12 })), "delayed until here"),
    h("li", null, sample(s("path", { class: "line-1", d: "M0 10L16 2" })), "quota left"));
}

function shown(one, sorted, span, window, limit) {
  const words = about(one);
  const label = `${words.title}: ${one.admitted} allowed, ${one.refused} refused, at most ${one.busiest_window} within one window.`;
  const over = one.busiest_window > limit;
  return h("section", { class: "card lane" },
    h("div", null, h("h2", null, words.title), h("p", null, words.choose)),
    lane(one, sorted, span, window, label),
    h("ul", null,
      h("li", null, h("b", null, one.admitted), " allowed, ", h("b", null, one.refused), " refused"),
      h("li", null, "busiest window ", h("b", { class: over ? "is-deny" : "is-allow" }, `${one.busiest_window}`), over ? `, above the limit of ${limit}` : `, within the limit of ${limit}`),
      h("li", null, h("small", null, `at most: ${words.bound}`)),
      h("li", null, h("small", null, `stores ${words.keeps}`))));
}
