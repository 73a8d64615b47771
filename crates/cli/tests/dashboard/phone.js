// On a phone, the rules table shows the rates without sideways scrolling, and addresses are not
// broken.
"use strict";

const { check, must, overhang, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  for (let at = 0; at < 30; at += 1) await check(args.http, { ip: "203.0.113.77", method: "POST", path: "/api/orders", api_key: "one" });
  const page = await open({ width: 390, height: 844 });
  const row = page.locator("tbody tr", { hasText: "writes" }).first();
  await row.waitFor();
  for (const name of ["Requests/s", "Refused/s"]) {
    const cell = row.locator(`td[data-label="${name}"]`);
    const box = await cell.boundingBox();
    must(box && box.x >= 0 && box.x + box.width <= 390 && box.width > 30, `${name} is not in sight: ${JSON.stringify(box)}`);
    same(await cell.evaluate((one) => getComputedStyle(one, "::before").content), JSON.stringify(name), "the name of the column");
  }
  const table = page.getByRole("region", { name: "Rules and what they do" });
  must(await table.evaluate((one) => one.scrollWidth <= one.clientWidth), "the table needs sideways scrolling");

  await page.goto(page.url().replace(/#.*|$/, "#/clients"));
  const client = page.locator("a.client", { hasText: "ip=203.0.113.77" }).first();
  await client.waitFor();
  same(await client.evaluate((one) => one.firstChild.getClientRects().length), 1, "lines of an address");
  must((await overhang(page)) <= 0, "the page is wider than the phone");

  await page.goto(page.url().replace(/#.*/, "#/try?ip=203.0.113.77"));
  await page.getByRole("button", { name: "Explain" }).click();
  const counter = page.locator('td[data-label="Counter of"] .untrusted', { hasText: "ip=203.0.113.77" });
  await counter.waitFor();
  same(await counter.evaluate((one) => one.getClientRects().length), 1, "lines of an address in an explanation");
});
