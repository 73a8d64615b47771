// Somebody who keeps the overview open; whoever runs this says on stdin when it is enough.
"use strict";

const { run } = require("./browser.js");

run(async ({ open }) => {
  const page = await open();
  await page.getByText("Live", { exact: true }).waitFor();
  console.error("open");
  await new Promise((resolve) => process.stdin.once("end", resolve).resume());
  await page.getByText("Live", { exact: true }).waitFor();
  const since = await page.locator(".tile .note").first().textContent();
  return { since };
});
