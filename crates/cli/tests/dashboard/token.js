// A token is asked for; a wrong one is told; one to read does not write; it is kept in this tab alone.
"use strict";

const { must, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open({ hash: "#/rules", expected: [/401/, /403/] });
  const dialog = page.getByRole("dialog", { name: "Sign in" });
  const give = async (token) => {
    await page.getByLabel("Access token", { exact: true }).fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await dialog.waitFor();
  await give("");
  await page.getByText("Enter the token first.").waitFor();
  await give("not-the-token");
  await page.getByText("The server does not accept this token.", { exact: false }).waitFor();
  await give(args.read);
  await dialog.waitFor({ state: "hidden" });
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Switch off writes" }).click();
  await page.getByLabel("Reason").fill("test");
  await page.getByRole("button", { name: "Switch off", exact: true }).click();
  await page.getByText("This token is read-only.", { exact: false }).waitFor();
  await give(args.write);
  await page.getByText("writes is off now.", { exact: false }).waitFor();

  const kept = await page.evaluate(() => [localStorage.length, document.cookie, Object.values(sessionStorage), location.href]);
  same(kept.slice(0, 3), [0, "", [args.write]], "where it is kept");
  must(!kept[3].includes(args.write), "not in the address");

  const other = await open({ hash: "#/rules", expected: [/401/, /403/] });
  await other.getByRole("dialog").waitFor();
  await other.keyboard.press("Escape");
  await other.getByText("this needs `Authorization", { exact: false }).first().waitFor();
  same(await other.locator("article").count(), 0, "rules without a token");
});
