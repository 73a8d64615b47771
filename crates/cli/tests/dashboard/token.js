// The page asks for a token, reports a wrong one, cannot write with a read-only one, and keeps it
// in this tab only.
"use strict";

const { must, run, same } = require("./browser.js");

run(async ({ open, args }) => {
  const page = await open({ hash: "#/rules", expected: [/401/, /403/] });
  const dialog = page.getByRole("dialog", { name: "Sign in" });
  const signIn = async (token) => {
    await page.getByLabel("Access token", { exact: true }).fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await dialog.waitFor();
  await signIn("");
  await page.getByText("Enter the token first.").waitFor();
  await signIn("not-the-token");
  await page.getByText("The server does not accept this token.", { exact: false }).waitFor();
  await signIn(args.read);
  await dialog.waitFor({ state: "hidden" });
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Switch off writes" }).click();
  await page.getByLabel("Reason").fill("test");
  await page.getByRole("button", { name: "Switch off", exact: true }).click();
  await page.getByText("This token is read-only.", { exact: false }).waitFor();
  await signIn(args.write);
  await page.getByText("writes is off now.", { exact: false }).waitFor();

  const stored = await page.evaluate(() => [localStorage.length, document.cookie, Object.values(sessionStorage), location.href]);
  same(stored.slice(0, 3), [0, "", [args.write]], "where the token is stored");
  must(!stored[3].includes(args.write), "the token is in the URL");

  const other = await open({ hash: "#/rules", expected: [/401/, /403/] });
  await other.getByRole("dialog").waitFor();
  await other.keyboard.press("Escape");
  await other.getByText("this needs `Authorization", { exact: false }).first().waitFor();
  same(await other.locator("article").count(), 0, "rules without a token");
});
