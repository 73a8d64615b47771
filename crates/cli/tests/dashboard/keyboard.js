// Everything works with the keyboard alone, and the focus is always visible.
"use strict";

const { must, run, same } = require("./browser.js");

run(async ({ open }) => {
  const page = await open();
  await page.getByText("Live", { exact: true }).waitFor();
  const focused = () => page.evaluate(() => {
    const one = document.activeElement;
    return { text: one.textContent.trim().slice(0, 40), outline: getComputedStyle(one).outlineStyle, tag: one.tagName };
  });
  const tab = async () => {
    await page.keyboard.press("Tab");
    const at = await focused();
    must(at.outline !== "none", `the focus is not visible on ${JSON.stringify(at)}`);
    return at;
  };
  same((await tab()).text, "Skip to the content", "first");
  same((await tab()).text, "Tidegate", "second");
  const names = [];
  for (let at = 0; at < 7; at += 1) names.push((await tab()).text);
  same(names, ["Overview", "Clients", "Rules", "Edit", "Versions", "Try it", "Algorithms"], "the pages");
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Try it" }).waitFor();
  same(await page.evaluate(() => document.activeElement.id), "main", "the opened page has the focus");

  while ((await tab()).tag !== "INPUT");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("/somewhere");
  await page.keyboard.press("Enter");
  await page.getByText("It would pass").waitFor();
  // The button after "Explain".
  while ((await tab()).text !== "Send it and use quota");
  await page.keyboard.press("Space");
  await page.getByRole("heading", { name: "Outcome" }).waitFor();

  // Switching a rule off without a mouse: the dialog takes the focus, Escape cancels, Enter
  // confirms.
  await page.goto(page.url().replace(/#.*/, "#/rules"));
  const off = page.getByRole("button", { name: "Switch off writes" });
  await off.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Switch off writes?" }).waitFor();
  same(await page.evaluate(() => document.activeElement.labels?.[0]?.textContent), "Reason", "the field with the focus");
  await page.keyboard.press("Escape");
  same(await page.locator("dialog[open]").count(), 0, "open dialogs");
  same((await focused()).text, "Switch off writes", "the focus after Escape");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await page.getByText("Write a reason", { exact: false }).waitFor();
  await page.keyboard.type("load test");
  await page.keyboard.press("Enter");
  await page.getByText("writes is off now.", { exact: false }).waitFor();
  same((await focused()).text, "Switch on writes", "the focus after the change");

  // Arrow keys move the cursor of a chart.
  await page.goto(page.url().replace(/#.*/, "#/"));
  const chart = page.locator(".chart svg").first();
  await page.waitForFunction(() => Number(document.querySelector(".chart svg")?.dataset.steps) >= 3);
  await chart.focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await page.locator(".legend li", { hasText: /^2 s ago$/ }).first().waitFor();
  same(await chart.locator("line.cursor").count(), 1, "cursors");
  await page.keyboard.press("ArrowRight");
  await page.locator(".legend li", { hasText: /^1 s ago$/ }).first().waitFor();
  must((await chart.getAttribute("aria-label")).includes("Decisions a second"), "the chart has no description");
});
