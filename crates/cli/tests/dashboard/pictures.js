// Takes the screenshots of the documentation, from a demo that has run for a while.
"use strict";

const { run } = require("./browser.js");

run(async ({ open, args }) => {
  for (const scheme of ["light", "dark"]) {
    const page = await open({ scheme, width: 1280, height: 860 });
    await page.getByText("Live", { exact: true }).waitFor();
    // Wait until the chart has enough data.
    await page.waitForFunction((seconds) => Number(document.querySelector(".chart svg")?.dataset.steps) >= seconds, args.seconds, { timeout: 180000 });
    await page.screenshot({ path: `${args.folder}/dashboard-${scheme}.png` });
    await page.click('nav a[href="#/algorithms"]');
    await page.locator(".lane svg").nth(5).waitFor();
    await page.screenshot({ path: `${args.folder}/algorithms-${scheme}.png` });
  }
});
