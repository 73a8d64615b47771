// How each rule counts, in the overview, on the page of rules and in an explanation: its mode, its
// bound, and what the node holds. `args.http` is a node on a shared store.
"use strict";

const { check, must, overhang, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open();
  await page.getByText("No decisions yet.").waitFor();
  for (let at = 0; at < 60; at += 1) await check(args.http, { ip: "203.0.113.7" });
  const row = (id) => page.locator("tbody tr", { hasText: id });
  const counted = async (id) => (await row(id).locator('td[data-label="Counted"] > *').allTextContents()).filter((text) => text);
  await row("lent").locator("small", { hasText: /^1 key, [1-9]\d* units?$/ }).waitFor();
  await row("soft").locator("small", { hasText: /^1 key, \d+ open$/ }).waitFor();
  same((await counted("lent"))[0], "leased", "mode");
  same((await counted("soft"))[0], "async", "mode");
  same(await counted("strict"), ["exact"], "mode");
  same(await counted("free"), ["–"], "mode of a rule without a counter");

  const share = page.locator(".tile", { hasText: "Decided locally" }).locator("dd").first();
  must(/^\d+ %$/.test(await share.textContent()), `not a share: ${await share.textContent()}`);
  await page.locator("dl.facts dd", { hasText: /^1 key, [1-9]\d* units? to spend$/ }).waitFor();

  await page.click('nav a[href="#/rules"]');
  const card = page.locator("article", { hasText: "lent" });
  await card.locator("dd", { hasText: "leased (ttl 30s, bound exact), leased from 1000 per 1h by token_bucket, burst 491" }).waitFor();
  await card.locator("dd", { hasText: "at most 1500 in any 1h" }).waitFor();
  await card.locator("dd", { hasText: /^1 key, [1-9]\d* units? to spend$/ }).waitFor();

  await page.goto(page.url().replace(/#.*/, "#/try?ip=203.0.113.7"));
  await page.getByRole("button", { name: "Explain" }).click();
  await page.locator('td[data-label="Limit"]', { hasText: /leased \(ttl 30s.*; this node has [1-9]\d* units? to spend/ }).waitFor();

  const phone = await open({ width: 390, height: 844 });
  await phone.locator('td[data-label="Counted"] small', { hasText: "unit" }).waitFor();
  must((await overhang(phone)) <= 0, "the page is wider than the phone");
});
