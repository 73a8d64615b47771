// A rule is edited, checked, applied and rolled back; what is wrong is told with its line.
"use strict";

const { must, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open({ hash: "#/edit" });
  const rule = async () => (await (await fetch(`${args.base}/v1/rules/writes`)).json()).rule.limit;
  const before = await rule();
  const area = page.getByLabel("Rules document (YAML)");
  await page.waitForFunction(() => document.querySelector("textarea").value.includes("writes"));
  const text = await area.inputValue();

  await area.fill(text.replace("requests: 10", "requests: 0"));
  await page.getByRole("button", { name: "Check and preview" }).click();
  await page.locator(".told.bad", { hasText: "admits nothing" }).waitFor();
  must(await page.getByRole("button", { name: "Apply" }).isDisabled(), "what is wrong cannot be applied");
  await page.locator(".told.bad button").first().click();
  const chosen = await area.evaluate((one) => one.value.slice(one.selectionStart, one.selectionEnd));
  must(chosen.includes("requests: 0"), `the line is shown: ${chosen}`);

  await area.fill(text.replace("requests: 10", "requests: 7"));
  must(await page.getByRole("button", { name: "Apply" }).isDisabled(), "what was not checked cannot be applied");
  await area.press("Control+Enter");
  await page.locator(".diff .gone", { hasText: "limit.requests: 10" }).waitFor();
  await page.locator(".diff .come", { hasText: "limit.requests: 7" }).waitFor();
  same(await rule(), before, "nothing changed yet");
  await page.getByLabel("Who").fill("ann");
  await page.getByLabel("Why").fill("they asked for it – twice");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("Version 2 is in force.", { exact: false }).first().waitFor();
  same((await rule()).requests, 7, "applied");

  await page.click('nav a[href="#/versions"]');
  await page.locator("summary", { hasText: "they asked for it – twice" }).waitFor();
  await page.locator("summary", { hasText: "Version 1" }).click();
  await page.getByRole("button", { name: "Go back to version 1", exact: true }).click();
  await page.getByRole("button", { name: "Yes, go back to version 1" }).click();
  await page.getByText("Version 3 is in force; it says what version 1 said.").waitFor();
  same(await rule(), before, "rolled back");

  await page.click('nav a[href="#/rules"]');
  await page.getByRole("button", { name: "Switch off writes" }).click();
  await page.getByText("writes is off now.").waitFor();
  await page.getByRole("button", { name: "Switch on writes" }).click();
  await page.getByText("writes is on now.").waitFor();
  const { versions } = await (await fetch(`${args.base}/v1/versions`)).json();
  return { versions: versions.map((one) => [one.version, one.author, one.reason]) };
});
