// The overview warns of a proxy that is not trusted. The test makes it trusted when it reads
// "warned"; then the warning goes away.
"use strict";

const { must, run } = require("./browser.js");

run(async ({ open }) => {
  const page = await open({});
  const warnings = page.getByLabel("Warnings", { exact: true });
  const line = warnings.getByText("most requests come from 127.0.0.1 with forwarding headers", { exact: false });
  await line.waitFor();
  must((await line.textContent()).includes("trusted_proxies: [127.0.0.1/32]"), "the warning has no advice");
  console.error("warned");
  await warnings.waitFor({ state: "hidden" });
});
