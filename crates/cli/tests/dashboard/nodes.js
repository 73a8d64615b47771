// The nodes of a fleet in the overview, each with its version. Whoever runs this stops `args.other` and changes the rules when it
// reads "even", says so on stdin, and lets it go on when it reads "behind". `args.silent` is on record and has not been seen for long.
"use strict";

const { run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const both = [args.here, args.other].sort();
  const until = async (page, here, other, silent) => {
    const said = { [args.here]: here, [args.other]: other };
    const expected = [...both.map((name) => [`Node ${name}`, said[name]]), [`Node ${args.silent}`, silent]];
    // Nodes are asked for when the page is opened, and every ten seconds.
    const end = Date.now() + 25000;
    for (let found; JSON.stringify(found) !== JSON.stringify(expected); await page.waitForTimeout(50)) {
      found = await page.evaluate(rows);
      if (Date.now() > end) same(found, expected, "nodes");
    }
  };
  await until(await open(), "version 1, this node", "version 1", "version 1, silent since then");
  console.error("even");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  process.stdin.destroy();
  // Opened anew, it is behind before it is silent.
  const page = await open();
  await until(page, "version 2, this node", "version 1, behind", "version 1, behind, silent since then");
  console.error("behind");
  await until(page, "version 2, this node", "version 2", "version 1, behind, silent since then");
});

/** Names of nodes and what is said of them; in one look, because the list is made anew with every event. */
function rows() {
  const names = [...document.querySelectorAll("dl.facts dt")].filter((name) => name.textContent.startsWith("Node "));
  const when = /silent since \d\d? \w+ \d{4}, \d\d:\d\d:\d\d$/;
  return names.map((name) => [name.textContent, name.nextElementSibling.textContent.replace(when, "silent since then")]);
}
