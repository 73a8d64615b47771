// A rule is edited, checked, applied and rolled back; errors cite their line.
"use strict";

const { must, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open({ hash: "#/edit" });
  const rule = async () => (await (await fetch(`${args.base}/v1/rules/writes`)).json()).rule.limit;
  const before = await rule();
  const area = page.getByLabel("Rules document (YAML)");
  await page.waitForFunction(() => document.querySelector("textarea").value.includes("writes"));
  const text = await area.inputValue();

  const isPrimary = (name) => page.getByRole("button", { name }).evaluate((one) => one.classList.contains("main"));
  must((await isPrimary("Check and preview")) && !(await isPrimary("Apply")), "checking is not the primary action");
  same(await page.locator(".line-numbers").textContent(), text.split("\n").map((_, at) => at + 1).join("\n"), "line numbers");
  await area.fill(text.replace("requests: 10", "requests: 0"));
  await page.getByRole("button", { name: "Check and preview" }).click();
  await page.locator(".message.bad", { hasText: "admits nothing" }).waitFor();
  must(await page.getByRole("button", { name: "Apply" }).isDisabled(), "an invalid document can be applied");
  await page.locator(".message.bad button").first().click();
  const chosen = await area.evaluate((one) => one.value.slice(one.selectionStart, one.selectionEnd));
  must(chosen.includes("requests: 0"), `another line is selected: ${chosen}`);
  // The line that the error cites is marked.
  const cited = Number(/line (\d+)/.exec(await page.locator(".message.bad button").first().textContent())[1]);
  must((await page.locator(".line-numbers").textContent()).split("\n")[cited - 1] === `✕ ${cited}`, `line ${cited} is not marked`);
  same((await area.inputValue()).split("\n")[cited - 1], chosen, "the cited line");

  await area.fill(text.replace("requests: 10", "requests: 7"));
  must(await page.getByRole("button", { name: "Apply" }).isDisabled(), "an unchecked document can be applied");
  await area.press("Control+Enter");
  await page.locator(".diff .gone", { hasText: "limit.requests: 10" }).waitFor();
  await page.locator(".diff .come", { hasText: "limit.requests: 7" }).waitFor();
  const background = (selector) => page.locator(selector).first().evaluate((one) => getComputedStyle(one).backgroundColor);
  must((await background(".diff .come")) !== (await background(".message.good")), "an added line does not stand out from its box");
  must(!(await isPrimary("Check and preview")) && (await isPrimary("Apply")), "applying is not the primary action");
  same(await rule(), before, "nothing changed yet");
  await page.getByLabel("Your name").fill("ann");
  await page.getByLabel("Reason").fill("they asked for it – twice");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("Version 2 is active.", { exact: false }).first().waitFor();
  same((await rule()).requests, 7, "applied");

  await page.click('nav a[href="#/versions"]');
  await page.locator("summary", { hasText: "they asked for it – twice" }).waitFor();
  await page.locator("summary", { hasText: "Version 1" }).click();
  await page.getByRole("button", { name: "Roll back to version 1", exact: true }).click();
  await page.getByRole("button", { name: "Yes, roll back to version 1" }).click();
  await page.getByText("Version 3 is active; it has the content of version 1.").waitFor();
  same(await rule(), before, "rolled back");

  // Switching a rule off asks for confirmation and a reason, and can be undone.
  await page.click('nav a[href="#/rules"]');
  const off = page.getByRole("button", { name: "Switch off writes" });
  const dialog = page.getByRole("dialog", { name: "Switch off writes?" });
  await off.click();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await off.click();
  await dialog.getByRole("button", { name: "Switch off" }).click();
  await dialog.getByText("Write a reason", { exact: false }).waitFor();
  const active = async () => (await (await fetch(`${args.base}/v1/rules/writes`)).json()).rule.is_active !== false;
  must(await active(), "the rule changed without a reason");
  await dialog.getByLabel("Reason").fill("incident 7");
  await dialog.getByRole("button", { name: "Switch off" }).click();
  await page.getByText("writes is off now.", { exact: false }).waitFor();
  const card = page.locator("article", { has: page.getByRole("heading", { name: "writes" }) });
  await card.locator(".badge", { hasText: "disabled" }).waitFor();
  must(!(await active()), "the rule is still on");
  await page.click('nav a[href="#/"]');
  await page.locator("tr.is-disabled", { hasText: "writes" }).locator(".badge", { hasText: "disabled" }).waitFor();
  await page.click('nav a[href="#/rules"]');
  await page.getByRole("button", { name: "Switch on writes" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Switch on" }).click();
  await page.getByText("writes is on now.", { exact: false }).waitFor();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByText("writes is off now.", { exact: false }).waitFor();
  same(await page.getByRole("button", { name: "Undo" }).count(), 0, "an undo cannot be undone");
  // Only rules that a version has changed show a version.
  must((await card.textContent()).includes("Last changed in version 6"), "the version that changed the rule is missing");
  must(!(await page.locator("article", { has: page.getByRole("heading", { name: "quiet" }) }).textContent()).includes("version"), "an unchanged rule shows a version");
  const { versions } = await (await fetch(`${args.base}/v1/versions`)).json();
  return { versions: versions.map((one) => [one.version, one.author, one.reason]) };
});
