// Who edits what somebody else has changed meanwhile overwrites nothing.
"use strict";

const { must, run } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open({ hash: "#/edit", expected: [/412/] });
  const area = page.getByLabel("Rules document (YAML)");
  await page.waitForFunction(() => document.querySelector("textarea").value.includes("writes"));
  await area.fill((await area.inputValue()).replace("requests: 10", "requests: 7"));
  await page.getByRole("button", { name: "Check and preview" }).click();
  await page.locator(".told.good").waitFor();
  const other = await fetch(`${args.base}/v1/rules/writes/disable`, { method: "POST", headers: { "if-match": "*" } });
  must(other.ok, "someone else was faster");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("Someone else changed the rules in the meantime.", { exact: false }).waitFor();
  const kept = (await (await fetch(`${args.base}/v1/rules/writes`)).json()).rule;
  must(kept.limit.requests === 10 && kept.is_active === false, "theirs is there");
});
