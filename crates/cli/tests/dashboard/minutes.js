// Charts start with the server's history: what happened before the page was opened is drawn at
// once.
"use strict";

const { must, run } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open();
  const chart = page.locator(".chart svg").first();
  await page.waitForFunction(() => document.querySelector(".chart svg")?.dataset.steps > 0);
  const steps = Number(await chart.getAttribute("data-steps"));
  must(steps >= args.steps, `${steps} steps are drawn, the server had ${args.steps}`);
  must((await chart.locator("path.band-allow").getAttribute("d")).length > 20, "no bands are drawn");
  // No decisions since the page was opened: the numbers of the rule come from the history.
  const row = page.locator("tbody tr", { hasText: "writes" }).first();
  const requests = await row.locator('td[data-label="Requests/s"]').textContent();
  must(Number(requests) > 0, `requests of the last minute: ${requests}`);
  must((await row.locator(".spark .all").getAttribute("d")).length > 0, "the last minute is not drawn");
  return { steps };
});
