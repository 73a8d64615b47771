// A stale edit overwrites nothing, and removing all rules requires confirmation.
"use strict";

const { must, run } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open({ hash: "#/edit", expected: [/412/, /428/] });
  const area = page.getByLabel("Rules document (YAML)");
  await page.waitForFunction(() => document.querySelector("textarea").value.includes("writes"));
  await area.fill((await area.inputValue()).replace("requests: 10", "requests: 7"));
  await page.getByRole("button", { name: "Check and preview" }).click();
  await page.locator(".message.good").waitFor();
  const other = await fetch(`${args.base}/v1/rules/writes/disable`, { method: "POST", headers: { "if-match": "*" } });
  must(other.ok, "the concurrent change failed");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("Someone else changed the rules in the meantime.", { exact: false }).waitFor();
  const current = (await (await fetch(`${args.base}/v1/rules/writes`)).json()).rule;
  must(current.limit.requests === 10 && current.is_active === false, "the concurrent change was overwritten");

  await page.getByRole("button", { name: "Start over" }).click();
  await page.waitForFunction(() => document.querySelector("textarea").value.includes("is_active"));
  await area.fill("rules: []\n");
  await page.getByRole("button", { name: "Check and preview" }).click();
  await page.locator(".message.good").waitFor();
  const rules = async () => (await (await fetch(`${args.base}/v1/rules`)).json()).total;
  const dialog = page.getByRole("dialog", { name: "Remove all rules?" });
  await page.getByRole("button", { name: "Apply" }).click();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  must((await rules()) > 0, "the rules changed without confirmation");
  await page.getByRole("button", { name: "Apply" }).click();
  await dialog.getByLabel("Reason").fill("closing down");
  await dialog.getByRole("button", { name: "Remove all rules" }).click();
  await page.getByText("See it, or roll back.").waitFor();
  must((await rules()) === 0, "the rules were not removed");
});
