// Entry point: selects the page to show and reports the state of the connection.

import { fill, h, say } from "/dashboard/js/dom.js";
import { handleEvent } from "/dashboard/js/history.js";
import { listen } from "/dashboard/js/live.js";
import * as overview from "/dashboard/js/page/overview.js";
import * as clients from "/dashboard/js/page/clients.js";
import * as rules from "/dashboard/js/page/rules.js";
import * as edit from "/dashboard/js/page/edit.js";
import * as versions from "/dashboard/js/page/versions.js";
import * as tryIt from "/dashboard/js/page/try.js";
import * as algorithms from "/dashboard/js/page/algorithms.js";

const PAGES = [
  ["#/", "Overview", overview],
  ["#/clients", "Clients", clients],
  ["#/rules", "Rules", rules],
  ["#/edit", "Edit", edit],
  ["#/versions", "Versions", versions],
  ["#/try", "Try it", tryIt],
  ["#/algorithms", "Algorithms", algorithms],
];

const main = document.getElementById("main");
const link = document.getElementById("link");
const notice = document.getElementById("notice");
let leave = () => {};

function show() {
  // `#main` is the target of the skip link, not a page.
  if (location.hash === "#main") return;
  const found = PAGES.find(([hash]) => hash === location.hash.split("?")[0]) ?? PAGES[0];
  const [current, title, page] = found;
  leave();
  document.title = `${title} · Tidegate`;
  fill(document.getElementById("pages"), PAGES.map(([hash, words]) =>
    h("a", { href: hash, "aria-current": hash === current ? "page" : null }, words)));
  document.querySelector("#pages [aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
  fill(main);
  leave = page.show(main) ?? (() => {});
  window.scrollTo(0, 0);
}

function showConnection(state, why) {
  link.classList.toggle("is-live", state === "live");
  link.classList.toggle("is-lost", state === "lost");
  say(link, state === "live" ? "Live" : "Connection lost, trying again");
  notice.hidden = state === "live";
  if (state === "lost") say(notice, `${why} The page shows the last data received, and reconnects automatically.`);
}

window.addEventListener("hashchange", () => {
  show();
  if (location.hash !== "#main") main.focus({ preventScroll: true });
});
show();
say(link, "Connecting");
listen(handleEvent, showConnection);
