// Hostile client names are rendered as text, do not change the text direction, and do not break the
// layout.
"use strict";

const { check, must, overhang, PAGES, run, same } = require("./browser.js");

const NAMES = [
  '<img src=x onerror="window.hacked=1">',
  "</td><script>window.hacked=1</script>",
  "\u202egnp.exe\u202c and \u2067RTL\u2069",
  // The longest value that the listeners accept.
  "x".repeat(8192),
  "bell\u0007 esc\u001b[31m nul\u0000 line\nline",
  "javascript:window.hacked=1",
];

run(async ({ open, args }) => {
  const send = async (name) => {
    const status = await check(args.http, { user_id: name, ip: "203.0.113.7", method: "GET", tier: name });
    must([200, 429].includes(status), `no decision for ${JSON.stringify(name.slice(0, 40))}: ${status}`);
  };
  for (const name of NAMES) for (let times = 0; times < 3; times += 1) await send(name);
  for (const width of [1280, 390]) {
    const page = await open({ width, expected: [/401/, /422/] });
    const token = page.getByLabel("Access token", { exact: true });
    await token.fill(args.token);
    await token.press("Enter");
    await page.getByText("Live", { exact: true }).waitFor();
    for (const name of NAMES) await send(name);
    await page.locator(".feed li", { hasText: "one-each" }).first().waitFor();
    for (const hash of PAGES) {
      await page.click(`nav a[href="${hash}"]`);
      if (hash === "#/clients") {
        // In the table of refused clients, and in the log.
        await page.locator("section", { hasText: "Most refused" }).getByText("<img src=x onerror=", { exact: false }).first().waitFor();
        await page.locator("section", { hasText: "Violation log" }).getByText("<img src=x onerror=", { exact: false }).first().waitFor();
        await page.getByText("⟨202e⟩gnp.exe", { exact: false }).first().waitFor();
        await page.getByText("bell⟨07⟩ esc⟨1b⟩", { exact: false }).first().waitFor();
        // A client's own page shows the same text.
        await page.locator("section", { hasText: "Most refused" }).locator("a.client", { hasText: "<img src=x onerror=" }).first().click();
        await page.locator("h1", { hasText: "<img src=x onerror=" }).waitFor();
        await page.locator("section", { hasText: "Violations" }).locator("tbody tr").first().waitFor();
        must((await overhang(page)) <= 0, `a client's page is wider than ${width}`);
      }
      if (hash === "#/try") {
        await page.getByLabel("method").selectOption("GET");
        await page.getByLabel("user_id").fill(NAMES[0]);
        await page.getByRole("button", { name: "Explain" }).click();
        await page.locator("td", { hasText: `user_id=${NAMES[0]}` }).waitFor();
        await page.getByLabel("tier").fill("<b>".repeat(3400));
        await page.getByRole("button", { name: "Explain" }).click();
        await page.locator(".message.bad", { hasText: "facts.tier" }).waitFor();
      }
      must((await overhang(page)) <= 0, `${hash} is wider than ${width}`);
      same(await page.evaluate(() => [window.hacked, document.querySelectorAll("main img, main script, main [onerror]").length]), [null, 0], `${hash} is text`);
    }
  }
});
