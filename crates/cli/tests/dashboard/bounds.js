// The rules table shows the most that each rule admits in a window, even before any request.
// `args.bounds` has the expected values.
"use strict";

const { run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open();
  await page.getByText("Live", { exact: true }).waitFor();
  const table = page.getByRole("table", { name: "Rules and what they do" });
  const heads = await table.locator("thead th").allTextContents();
  await table.locator("tbody th").first().waitFor();
  // The row header has the rule's name, with the endpoint below it.
  const rows = await table.locator("tbody tr").evaluateAll((all, at) => all.map((row) => [
    row.querySelector("th .untrusted").textContent, row.children[at].textContent]), heads.indexOf("Most in a window"));
  same(rows, args.bounds, "bounds");
});
