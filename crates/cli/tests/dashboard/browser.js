// Runs a scenario in a real Chromium against a real server, and fails on any error in the page.
//
// Run as `node SCENARIO.js '{"base": "http://…", …}'`; prints the scenario's result as JSON.
"use strict";

const { chromium } = require("playwright-core");

const args = JSON.parse(process.argv[2] ?? "{}");

/**
 * Opens a browser and runs `scenario({ open, args })`, which opens pages. The process exits with 1
 * if it throws.
 */
exports.run = async (scenario) => {
  const browser = await chromium.launch({ executablePath: args.chromium, args: ["--no-sandbox"] });
  const problems = [];
  const open = async (options = {}) => {
    const { scheme = "light", width = 1280, height = 900 } = options;
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height }, reducedMotion: "reduce" });
    const page = await context.newPage();
    page.setDefaultTimeout(20000);
    watch(page, problems, options.expected ?? []);
    await page.goto(`${args.base}/${options.hash ?? ""}`);
    return page;
  };
  try {
    const report = await scenario({ open, args });
    if (problems.length) throw new Error(`errors in the page: ${problems.join("\n")}`);
    console.log(JSON.stringify(report ?? {}));
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
};

/** Collects console errors (including policy violations), exceptions, and failed requests. */
function watch(page, problems, expected) {
  const put = (text) => expected.some((known) => known.test(text)) || problems.push(text);
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && put(`${message.text()} ${message.location().url}`));
  page.on("pageerror", (error) => put(`exception: ${error.message}`));
  page.on("requestfailed", (request) => put(`failed: ${request.url()} ${request.failure()?.errorText}`));
}

/** Fails if `found` differs from `expected`. */
exports.same = (found, expected, what) => {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: found ${a}, expected ${b}`);
};

exports.must = (holds, what) => {
  if (!holds) throw new Error(what);
};

/** The hashes of all pages. */
exports.PAGES = ["#/", "#/clients", "#/rules", "#/edit", "#/versions", "#/try", "#/algorithms"];

/** Sends a check to the HTTP listener and returns the status. */
exports.check = async (address, facts) => {
  const response = await fetch(`http://${address}/v1/check`, { method: "POST", body: JSON.stringify({ facts }) });
  return response.status;
};

/** How many pixels the page is wider than the window. */
exports.overhang = (page) => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
