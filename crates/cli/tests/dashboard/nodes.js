// The nodes of a fleet in the overview, each with its version. When the test reads "even", it
// pauses `args.other`, changes the rules, and writes to stdin. When it reads "behind", it resumes
// the node. `args.silent` has sent no heartbeat for a minute.
"use strict";

const { run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const both = [args.here, args.other].sort();
  const until = async (page, here, other, silent) => {
    const states = { [args.here]: here, [args.other]: other };
    const expected = [...both.map((name) => [`Node ${name}`, states[name]]), [`Node ${args.silent}`, silent]];
    // The page fetches the nodes when it is opened, and every ten seconds.
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
  // Opened again, so that the node is shown as behind before it counts as silent.
  const page = await open();
  await until(page, "version 2, this node", "version 1, behind", "version 1, behind, silent since then");
  console.error("behind");
  await until(page, "version 2, this node", "version 2", "version 1, behind, silent since then");
});

/**
 * Names and states of the nodes; read at once, because the page rebuilds the list with every event.
 */
function rows() {
  const names = [...document.querySelectorAll("dl.facts dt")].filter((name) => name.textContent.startsWith("Node "));
  const when = /silent since \d\d? \w+ \d{4}, \d\d:\d\d:\d\d$/;
  return names.map((name) => [name.textContent, name.nextElementSibling.textContent.replace(when, "silent since then")]);
}
