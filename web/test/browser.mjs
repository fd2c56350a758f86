// A browser, and what every step wants of a page in it: that it says no error,
// breaks no policy, and that axe finds nothing.

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const control = process.env.PAGE_CONTROL;
const pictures = process.env.PAGE_PICTURES;
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const desk = { width: 1280, height: 800 };

const patience = Number(process.env.PAGE_PATIENCE ?? 30_000);
let browser;

export async function launch() {
  await mkdir(pictures, { recursive: true });
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP *.example 127.0.0.1"],
  });
}

export async function close() {
  await browser?.close();
}

/** pull asks TestPage for something. */
export async function pull(path, body) {
  const response = await fetch(control + "/" + path, body === undefined ? {} : { method: "POST", body });
  const text = await response.text();
  assert.ok(response.ok, `${path}: ${text}`);
  return text;
}

export const apply = (yaml) => pull("apply", yaml);
export const remove = (resource, namespace, name) => pull(`delete/${resource}/${namespace}/${name}`, "");
export const printed = (page) => pull("url/" + page);

/** stranger is a browser that has opened nothing yet. */
export async function stranger(options = {}) {
  const context = await browser.newContext({ viewport: desk, colorScheme: "light", reducedMotion: "reduce", ...options });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  return page;
}

/** visit runs a step in a browser of its own that has opened the printed URL of a
 * page ("small" or "large"). Errors that the page says there fail the step. */
export function visit(name, step, options = {}) {
  return async () => {
    const page = await stranger(options);
    const wrong = [];
    page.on("console", (m) => m.type() === "error" && wrong.push(`console: ${m.text()} ${m.location().url}`));
    page.on("pageerror", (e) => wrong.push("exception: " + e.message));
    page.on("requestfailed", (r) => r.failure()?.errorText !== "net::ERR_ABORTED" && wrong.push(`request: ${r.url()} ${r.failure()?.errorText}`));
    await page.exposeFunction("violated", (text) => wrong.push("policy: " + text));
    await page.addInitScript(() => addEventListener("securitypolicyviolation", (e) => window.violated(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}`)));
    await page.addInitScript(axe);
    try {
      await page.goto(await printed(name));
      await page.getByRole("navigation", { name: "Views" }).waitFor();
      assert.ok(!page.url().includes("token"), "the token stays in the URL");
      await step(page, wrong);
      assert.deepEqual(wrong, [], "the page says errors");
    } finally {
      await page.context().close();
    }
  };
}

/** open goes to a place of the page, and waits for what it must show. */
export async function open(page, place, shows) {
  await page.evaluate((hash) => { location.hash = hash; }, "#/" + place);
  const title = ["Fairway", ...place.split("?")[0].split("/")].join(" · ");
  await page.waitForFunction((wanted) => document.title === wanted, title); // the view before is gone
  await page.locator("main").getByText(shows).first().waitFor();
}

/** audit has axe look at what is shown. */
export async function audit(page, what) {
  const violations = await page.evaluate(async () => {
    const found = await window.axe.run(document, { resultTypes: ["violations"] });
    return found.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 4).map((n) => `${n.html.slice(0, 160)} (${n.failureSummary?.replaceAll(/\s+/g, " ")})`).join(" | ")}`);
  });
  assert.deepEqual(violations, [], "axe: " + what);
}

/** picture keeps what is shown. The caret stays as it is: to hide it takes a style that the page's policy refuses. */
export async function picture(page, name) {
  await page.screenshot({ path: join(pictures, name + ".png"), caret: "initial", animations: "allow" });
}

/** eventually asks until a check holds. */
export async function eventually(check) {
  for (const end = Date.now() + patience; ; await new Promise((done) => setTimeout(done, 50))) {
    try {
      return await check();
    } catch (e) {
      if (Date.now() > end) throw e;
    }
  }
}

export const copied = (page) => page.evaluate(() => navigator.clipboard.readText());
export const focused = (page) => page.evaluate(() => document.activeElement?.textContent ?? "");
export const place = (page) => page.evaluate(() => location.hash);
