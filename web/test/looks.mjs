// Each view, in light and dark, on a desk and on a phone: axe finds nothing, nothing
// is wider than the window, and a picture is kept.

import assert from "node:assert/strict";
import { test } from "node:test";
import { audit, desk, open, picture, visit } from "./browser.mjs";
import { connections } from "./flows.mjs";

const phone = { width: 390, height: 844 };
const views = {
  problems: ["problems", "kubelet stopped"],
  services: ["services", /^\d+ Services?$/],
  nothing: ["services?q=nothing", "0 of 6 Services"],
  service: ["services/shop/web", "The same as commands"],
  broken: ["services/shop/cart", "The same as commands"],
  alias: ["services/shop/mail", "The same as commands"],
  none: ["services/shop/none", "none"],
  nodes: ["nodes", "3 nodes"],
  changes: ["changes", "since this page was started"],
  flows: ["flows", "Events per second"],
  cause: ["causes/FW101", "Services with FW101"],
};

for (const scheme of ["light", "dark"]) {
  for (const [window, viewport] of Object.entries({ desk, phone })) {
    test(`looks: ${scheme}, ${window}`, visit("small", async (page) => {
      for (const [name, [place, shows]] of Object.entries(views)) {
        const opened = open(page, place, shows);
        if (name === "flows") await connections();
        await opened;
        assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), scheme);
        await audit(page, `${name}, ${scheme}, ${window}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name}: ${wide} pixels wider than the window`);
        const hidden = await page.locator("nav [aria-current]").evaluateAll((list) => list.filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length);
        assert.equal(hidden, 0, `${name}: the name of the view is out of sight`);
        await picture(page, window === "desk" ? `${name}-${scheme}` : `${name}-${scheme}-${window}`);
      }
      await page.locator("main").focus();
      await page.keyboard.press("?");
      await page.getByRole("dialog").waitFor();
      await audit(page, `keys, ${scheme}, ${window}`);
      await picture(page, window === "desk" ? `keys-${scheme}` : `keys-${scheme}-${window}`);
    }, { colorScheme: scheme, viewport }));
  }
}

test("the picture of the documents, docs/pictures/page.png", visit("small", async (page) => {
  await open(page, "problems", "kubelet stopped");
  await page.getByText("6 Services looked at").waitFor();
  await picture(page, "page");
}, { viewport: { width: 980, height: 600 } }));
