// Rules from a file: the pages say where to change them, and do not offer changes.
"use strict";

const { must, run } = require("./browser.js");

run(async ({ open }) => {
  const page = await open({ hash: "#/rules" });
  await page.getByText("these rules are read-only here", { exact: false }).first().waitFor();
  await page.getByText("--rules-db sqlite:PATH", { exact: false }).first().waitFor();
  must(await page.getByRole("button", { name: "Switch off writes" }).isDisabled(), "the switch is not disabled");
  await page.click('nav a[href="#/edit"]');
  await page.getByText("You can check a document here, but not apply it", { exact: false }).waitFor();
  const area = page.getByLabel("Rules document (YAML)");
  await area.fill((await area.inputValue()).replace("requests: 10", "requests: 7"));
  await page.getByRole("button", { name: "Check and preview" }).click();
  await page.locator(".message.good").waitFor();
  must(await page.getByRole("button", { name: "Apply" }).isDisabled(), "Apply is not disabled");
  await page.click('nav a[href="#/versions"]');
  await page.getByText("There are no versions:", { exact: false }).waitFor();
});
