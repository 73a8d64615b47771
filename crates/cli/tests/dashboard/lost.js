// A connection that is lost is shown, and comes back by itself. `args.base` is gone for a while: whoever runs this stops
// the server when it reads "open" and starts it again when it reads "lost".
"use strict";

const { must, run } = require("./browser.js");

run(async ({ open }) => {
  const page = await open({ expected: [/ERR_CONNECTION/, /ERR_INCOMPLETE/, /ERR_ABORTED/, /ERR_EMPTY/, /net::/] });
  await page.getByText("Live", { exact: true }).waitFor();
  console.error("open");
  await page.getByText("Connection lost, trying again").waitFor();
  must(await page.locator("#notice").isVisible(), "why is told");
  console.error("lost");
  await page.getByText("Live", { exact: true }).waitFor();
  must(await page.locator("#notice").isHidden(), "and it is over");
});
