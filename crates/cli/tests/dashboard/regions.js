// How regions divide a rule, what the node borrowed of it, and what its region lent: `args.share` and
// `args.lent` on the page of rules.
"use strict";

const { must, overhang, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open();
  await page.locator("dl.facts dd", { hasText: "usable" }).waitFor();
  // Nothing is refused while the page is open: one sentence, not broken into a narrow column.
  same(await lines(page.locator(".feed .empty")), 1, "lines of the sentence");

  await page.click('nav a[href="#/rules"]');
  const value = (name) => page.locator(`article:has-text("global") dt:text-is("${name}") + dd`);
  await value("Share").filter({ hasText: `${args.share} (eu 50%, us 30%, ap 20%)` }).waitFor();
  await value("Bound").filter({ hasText: /, 600 in all regions$/ }).waitFor();
  await value("Borrowed").filter({ hasText: /^from .*usable.*; by this node: [\d,]+ units? held, [\d,]+ units? spent/ }).waitFor();
  await value("Lent").filter({ hasText: new RegExp(args.lent) }).waitFor();

  for (const hash of ["#/", "#/rules"]) {
    const phone = await open({ width: 390, height: 844, hash });
    await phone.getByText("Live", { exact: true }).waitFor();
    must((await overhang(phone)) <= 0, `${hash} is wider than the phone`);
  }
});

/** The number of lines on which the text of an element is shown. */
async function lines(element) {
  await element.waitFor();
  return element.evaluate((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return new Set([...range.getClientRects()].map((line) => line.top)).size;
  });
}
