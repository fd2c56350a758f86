// 10,000 Services: only what is in sight is there, and what is asked for is small.

import assert from "node:assert/strict";
import { test } from "node:test";
import { audit, eventually, focused, open, picture, visit } from "./browser.mjs";

test("10,000 Services: drawn, searched and moved through a screen at a time", visit("large", async (page) => {
  const asked = [];
  page.on("response", async (r) => {
    if (!r.url().includes("/api/v1/services?")) return;
    asked.push({ url: r.url(), size: (await r.body().catch(() => "")).length });
  });
  const rows = page.locator(".scroll .row");
  const names = () => page.locator(".list [data-item]").allTextContents();
  const few = async () => assert.ok((await rows.count()) < 60, `${await rows.count()} rows are drawn`);

  await open(page, "services?sort=worst", "10,000 Services");
  await eventually(async () => assert.equal((await names())[0], "team-21/s4321", "the only one with a problem"));
  await few();
  assert.equal(await page.getByRole("table", { name: "Services" }).getAttribute("aria-rowcount"), "10001");
  assert.equal(asked.length, 1, "one page is asked for");

  await page.getByRole("searchbox").fill("s9876");
  await page.getByText("1 of 10,000 Services").waitFor();
  await eventually(async () => assert.deepEqual(await names(), ["team-76/s9876"]));
  await page.getByRole("searchbox").fill("team-7/");
  await page.getByText("100 of 10,000 Services").waitFor();
  await page.getByRole("searchbox").fill("");
  await page.getByText("10,000 Services", { exact: true }).waitFor();
  await few();

  await open(page, "services", "10,000 Services");
  await eventually(async () => assert.equal((await names())[0], "team-0/s0"));
  await page.locator(".scroll").evaluate((e) => { e.scrollTop = e.scrollHeight; });
  await eventually(async () => assert.equal((await names()).at(-1), "team-99/s9999"));
  await few();
  await page.locator(".scroll").evaluate((e) => { e.scrollTop = 0; });
  await eventually(async () => assert.equal((await names())[0], "team-0/s0"));

  await page.locator("main").focus();
  for (let i = 0; i < 130; i++) await page.keyboard.press("j");
  await eventually(async () => assert.equal(await focused(page), "team-1/s3501"));
  await few();
  await page.locator(".scroll").hover();
  await page.mouse.wheel(0, 100_000);
  await eventually(async () => assert.ok((await names())[0].startsWith("team-3"), "the list scrolls away from the row that has the focus"));
  await page.keyboard.press("k");
  await eventually(async () => assert.equal(await focused(page), "team-1/s3401"));
  await audit(page, "10,000 Services");
  await picture(page, "many-light");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "s3401" }).waitFor();

  assert.ok(asked.length < 20, `asked ${asked.length} times`);
  const largest = Math.max(...asked.map((a) => a.size));
  assert.ok(largest > 0 && largest < 64 << 10, `an answer of ${largest} bytes`);
}));
