// Keeps the overview open until the test closes stdin.
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
