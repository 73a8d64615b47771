// One client can be followed through all tables: it has the same name everywhere, and a page with
// its counters and violations.
"use strict";

const { check, must, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const name = "ip=203.0.113.77";
  for (let at = 0; at < 9; at += 1) await check(args.http, { ip: "203.0.113.77", method: "PUT", path: "/x" });
  for (let at = 0; at < 9; at += 1) await check(args.http, { ip: "203.0.113.78", method: "PUT", path: "/x" });
  const page = await open({ hash: "#/clients" });
  const section = (title) => page.locator("section.card", { has: page.getByRole("heading", { name: title, exact: true }) });
  for (const title of ["Most refused", "Busiest"]) await section(title).getByRole("link", { name }).first().waitFor();
  // The server writes violations within a second.
  await page.waitForFunction(async () => (await (await fetch("/v1/violations")).json()).violations.length >= 8);
  await page.getByRole("button", { name: "Search" }).click();
  await section("Violation log").getByRole("link", { name }).first().waitFor();
  await page.getByRole("button", { name: "Group by client" }).click();
  await section("Violation log").getByRole("link", { name }).first().click();

  await page.getByRole("heading", { name: `Client ${name}` }).waitFor();
  const counters = section("Counters of the last 1–2 minutes").locator("tbody tr");
  await counters.first().waitFor();
  same(await counters.evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))),
    [["quiet", name, "9", "4", "0"]], "counters");
  const rows = section("Violations").locator("tbody tr");
  await rows.first().waitFor();
  same(await rows.evaluateAll((all) => all.map((row) => row.cells[0].textContent)), Array(4).fill(name), "violations of this client only");
  await page.getByRole("link", { name: "Explain a request with this ip" }).click();
  same(await page.getByLabel("ip", { exact: true }).inputValue(), "203.0.113.77", "the address on the Try it page");
  must(page.url().includes("#/try"), "the Try it page is not open");
});
