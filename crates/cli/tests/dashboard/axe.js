// axe-core finds no serious violation on any page, in both color schemes and at both widths.
"use strict";

const fs = require("fs");
const { PAGES, run, same } = require("./browser.js");

const source = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

run(async ({ open }) => {
  let rules = 0;
  for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390], ["dark", 390]]) {
    const page = await open({ scheme, width });
    await page.getByText("Live", { exact: true }).waitFor();
    await page.locator(".feed li time").first().waitFor();
    for (const hash of PAGES) {
      await page.click(`nav a[href="${hash}"]`);
      await page.locator(`nav a[href="${hash}"][aria-current=page]`).waitFor();
      if (hash === "#/clients") await page.locator("tbody td").first().waitFor();
      if (hash === "#/rules") await page.locator("article").first().waitFor();
      if (hash === "#/edit") await page.getByRole("button", { name: "Check and preview" }).click();
      if (hash === "#/try") {
        await page.getByRole("button", { name: "Explain" }).click();
        await page.locator(".verdict").waitFor();
      }
      if (hash === "#/algorithms") await page.locator(".lane svg").nth(5).waitFor();
      await page.evaluate(source);
      const found = await page.evaluate(() => window.axe.run(document));
      const bad = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
      same(bad.map((one) => [one.id, one.help, one.nodes.slice(0, 3).map((node) => [node.html.slice(0, 160), node.any[0]?.message])]), [], `${hash} in ${scheme} at ${width}`);
      rules += found.passes.length;
    }
  }
  return { rules };
});
