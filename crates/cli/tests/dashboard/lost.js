// The page shows a lost connection, and reconnects. The test stops the server when it reads "open",
// and starts it again when it reads "lost".
"use strict";

const { must, run } = require("./browser.js");

run(async ({ open }) => {
  const page = await open({ expected: [/ERR_CONNECTION/, /ERR_INCOMPLETE/, /ERR_ABORTED/, /ERR_EMPTY/, /net::/] });
  await page.getByText("Live", { exact: true }).waitFor();
  console.error("open");
  await page.getByText("Connection lost, trying again").waitFor();
  must(await page.locator("#notice").isVisible(), "the notice is not shown");
  console.error("lost");
  await page.getByText("Live", { exact: true }).waitFor();
  must(await page.locator("#notice").isHidden(), "the notice is still shown");
});
