// Every page loads without errors, in both color schemes and on a phone, and empty pages say what
// to do.
"use strict";

const { PAGES, must, overhang, run, same } = require("./browser.js");

run(async ({ open }) => {
  const titles = [];
  for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
    const page = await open({ scheme, width });
    await page.getByText("Live", { exact: true }).waitFor();
    await page.getByText("No decisions yet.").waitFor();
    for (const hash of PAGES) {
      await page.click(`nav a[href="${hash}"]`);
      await page.locator(`nav a[href="${hash}"][aria-current=page]`).waitFor();
      const title = await page.locator("h1").textContent();
      same(await page.locator("h1").count(), 1, `headings of ${hash}`);
      must((await overhang(page)) <= 0, `${hash} is wider than ${width}`);
      titles.push(title);
    }
  }
  return { titles };
});
