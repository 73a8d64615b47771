// Numbers change under traffic, and agree with /metrics when it has stopped.
"use strict";

const { check, must, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open();
  await page.getByText("No decisions yet.").waitFor();
  const facts = (at) => ({ ip: "203.0.113.7", method: "POST", path: "/api/orders", api_key: `client-${at % 3}` });
  const statuses = [];
  for (let at = 0; at < 30; at += 1) statuses.push(await check(args.http, facts(at)));
  await page.getByText("30 since the start").waitFor();
  for (let at = 0; at < 60; at += 1) statuses.push(await check(args.http, facts(at)));
  await page.getByText("90 since the start").waitFor();
  const refused = statuses.filter((status) => status === 429).length;
  must(refused > 0 && refused < 90, `${refused} of 90 were refused`);

  const metrics = await (await fetch(`${args.base}/metrics`)).text();
  const counted = (outcome) => [...metrics.matchAll(/^tidegate_decisions_total\{(.*)\} (\d+)$/gm)]
    .filter(([, labels]) => labels.includes(`outcome="${outcome}"`)).reduce((all, [, , number]) => all + Number(number), 0);
  same(counted("allowed") + counted("refused"), 90, "decisions in /metrics");
  same(counted("refused"), refused, "refusals in /metrics");

  // The tile shows the share of the last ten seconds, which include all requests.
  const share = await page.locator(".tile", { hasText: "Refused" }).locator("dd").first().textContent();
  must(/^\d+(\.\d)? %$/.test(share), `not a share: ${share}`);
  const row = page.locator("tr", { hasText: "writes" }).first();
  must((await row.locator('td[data-label="Requests/s"]').textContent()) !== "0", "the rule's rate is 0");
  await page.locator(".feed li", { hasText: "writes" }).first().waitFor();
  return { refused, share };
});
