// Everything by keyboard alone: no step here clicks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { copied, eventually, focused, open, place, visit } from "./browser.mjs";

test("search, move, open, go back, copy", visit("small", async (page) => {
  const keys = page.keyboard;
  await page.locator(".problem").first().waitFor();
  await keys.press("g");
  await keys.press("s");
  await page.getByText("6 Services", { exact: true }).waitFor();
  await keys.press("/");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "search");
  await keys.type("shop http");
  await page.getByText("4 of 6 Services").waitFor();
  await keys.press("Enter");
  await eventually(async () => assert.equal(await focused(page), "shop/cart"));
  await keys.press("j");
  await eventually(async () => assert.equal(await focused(page), "shop/orders"));
  await keys.press("j");
  await eventually(async () => assert.equal(await focused(page), "shop/payments"));
  await keys.press("k");
  await eventually(async () => assert.equal(await focused(page), "shop/orders"));
  await keys.press("Enter");
  await page.getByRole("heading", { level: 1, name: "orders" }).waitFor();
  await page.getByText("The same as commands").waitFor();
  await keys.press("c");
  await eventually(async () => assert.match(await copied(page), /^fairway explain svc\/orders -n shop/));
  await keys.press("Escape");
  await page.getByText("4 of 6 Services").waitFor();
  assert.match(await place(page), /^#\/services\?q=shop\+http/);
  await keys.press("/");
  await keys.press("Escape");
  await page.getByText("6 Services", { exact: true }).waitFor();
  await keys.press("Escape");
  assert.notEqual(await page.evaluate(() => document.activeElement?.id), "search");
}));

test("problems, help, colours, and tab from the first element on", visit("small", async (page) => {
  const keys = page.keyboard;
  await page.getByText("6 Services looked at").waitFor();
  await page.locator(".problem [data-item]").first().waitFor();
  await keys.press("j");
  const first = await focused(page);
  await keys.press("j");
  assert.notEqual(await focused(page), first);
  await keys.press("k");
  assert.equal(await focused(page), first);

  await keys.press("?");
  const help = page.getByRole("dialog", { name: "Keys" });
  await help.waitFor();
  assert.match(await help.innerText(), /next, previous/);
  await keys.press("j");
  await keys.press("Escape");
  await help.waitFor({ state: "hidden" });
  assert.equal(await focused(page), first, "the focus is where it was");

  const scheme = () => page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await scheme(), "light");
  await page.emulateMedia({ colorScheme: "dark" });
  await eventually(async () => assert.equal(await scheme(), "dark"));
  await keys.press("t");
  assert.equal(await scheme(), "light", "what was chosen comes before the system's");
  await page.reload();
  await page.locator(".problem").first().waitFor();
  assert.equal(await scheme(), "light");
  await keys.press("t");
  await keys.press("t");
  assert.equal(await scheme(), "dark");

  await open(page, "nodes", "3 nodes");
  await page.reload();
  await page.getByText("3 nodes").waitFor();
  const seen = [];
  for (let i = 0; i < 60; i++) {
    await keys.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (!e || e === document.body) return "";
      const ring = getComputedStyle(e);
      return (ring.outlineStyle === "none" ? "NO RING " : "") + (e.getAttribute("aria-label") ?? e.textContent ?? "");
    });
    if (!at) break;
    seen.push(at);
  }
  assert.equal(seen[0], "Skip to the content");
  for (const wanted of ["Search nodes", "Keys", "node1", "node3", "Copy: kubectl describe node node3 --kubeconfig '/tmp/my config'"]) assert.ok(seen.includes(wanted), `tab never comes to ${wanted}: ${seen.join(", ")}`);
  assert.deepEqual(seen.filter((s) => s.startsWith("NO RING")), [], "one doesn't see where the focus is");
}));

test("to a Service from every view, and back", visit("small", async (page) => {
  const keys = page.keyboard;
  for (const [key, heading] of [["n", "Nodes"], ["c", "Changes"], ["f", "Flows"], ["s", "Services"], ["p", "Problems"]]) {
    await keys.press("g");
    await keys.press(key);
    await page.getByRole("heading", { level: 1, name: heading }).waitFor();
  }
  await page.locator(".problem [data-item]").first().waitFor();
  for (let i = 0; i < 40 && (await focused(page)) !== "shop/cart"; i++) await keys.press("j");
  await keys.press("Enter");
  await page.getByRole("heading", { level: 1, name: "cart" }).waitFor();
  await keys.press("Escape");
  await page.getByRole("heading", { level: 1, name: "Problems" }).waitFor();
}));
