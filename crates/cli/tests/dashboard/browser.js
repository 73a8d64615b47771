// A real Chromium on a real server: opened, watched for anything that goes wrong, and closed.
//
// Run as `node SCENARIO.js '{"base": "http://…", …}'`; what a scenario returns is printed as JSON.
"use strict";

const { chromium } = require("playwright-core");

const args = JSON.parse(process.argv[2] ?? "{}");

/** Opens a browser for a scenario; `scenario({ open, args })` opens pages. Ends the process with 1 when it throws. */
exports.run = async (scenario) => {
  const browser = await chromium.launch({ executablePath: args.chromium, args: ["--no-sandbox"] });
  const troubles = [];
  const open = async (options = {}) => {
    const { scheme = "light", width = 1280, height = 900 } = options;
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height }, reducedMotion: "reduce" });
    const page = await context.newPage();
    page.setDefaultTimeout(20000);
    watch(page, troubles, options.expected ?? []);
    await page.goto(`${args.base}/${options.hash ?? ""}`);
    return page;
  };
  try {
    const told = await scenario({ open, args });
    if (troubles.length) throw new Error(`the page complained: ${troubles.join("\n")}`);
    console.log(JSON.stringify(told ?? {}));
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
};

/** Errors in the console (violations of the policy are there too), exceptions, and files that did not come. */
function watch(page, troubles, expected) {
  const put = (text) => expected.some((known) => known.test(text)) || troubles.push(text);
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && put(`${message.text()} ${message.location().url}`));
  page.on("pageerror", (error) => put(`exception: ${error.message}`));
  page.on("requestfailed", (request) => put(`failed: ${request.url()} ${request.failure()?.errorText}`));
}

/** Fails with what was found. */
exports.same = (found, expected, what) => {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: found ${a}, expected ${b}`);
};

exports.must = (holds, what) => {
  if (!holds) throw new Error(what);
};

/** The names of pages and their addresses. */
exports.PAGES = ["#/", "#/clients", "#/rules", "#/edit", "#/versions", "#/try", "#/algorithms"];

/** Asks the decision door. */
exports.check = async (door, facts) => {
  const answer = await fetch(`http://${door}/v1/check`, { method: "POST", body: JSON.stringify({ facts }) });
  return answer.status;
};

/** How much wider the page is than the window. */
exports.overhang = (page) => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
