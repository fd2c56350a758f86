// Connections as they come.

import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, open, pull, visit } from "./browser.mjs";

const base = { node: "node1", protocol: "TCP", client: "10.244.1.2:41000", clientName: "shop/web-1", frontend: "10.96.0.12:8000", service: "shop/orders:http" };

/** connections makes one of each verdict; it waits until the page listens. */
export async function connections() {
  const one = (more) => eventually(() => pull("flow", JSON.stringify({ ...base, ...more })));
  await one({ endpoint: "10.244.2.4:8000", pod: "shop/orders-1", verdict: "answered" });
  await one({ endpoint: "10.244.2.4:8000", pod: "shop/orders-1", verdict: "ended", bytes: { in: 512, out: 1234567 }, tookSeconds: 0.0123 });
  await one({ client: "10.244.1.2:41001", verdict: "refused", reason: "the Service has no endpoint that is ready" });
  await one({ client: "192.0.2.8:5000", clientName: "", frontend: "10.96.0.99:81", service: "", verdict: "dropped", reason: "no Service has this port" });
}

test("flows: verdict, reason, bytes and duration", visit("small", async (page) => {
  await open(page, "flows", "Waiting for connections");
  await page.getByText("node3: its agent doesn't answer").waitFor();
  await connections();
  const rows = page.getByRole("region", { name: "Connections" }).locator("tbody tr");
  await eventually(async () => assert.equal(await rows.count(), 4));
  const [dropped, refused, ended, answered] = await rows.allInnerTexts();
  assert.match(dropped, /192\.0\.2\.8:5000[^]*no Service[^]*10\.96\.0\.99:81\/TCP[^]*dropped no Service has this port/);
  assert.match(refused, /shop\/orders:http[^]*refused the Service has no endpoint that is ready/);
  assert.match(ended, /shop\/orders-1 10\.244\.2\.4:8000[^]*ended[^]*512 B \/ 1\.2 MB[^]*12 ms/);
  assert.match(answered, /answered\s+–\s+–/);
  await page.getByText("4 events so far").waitFor();
  await page.getByText("Events per second").waitFor();

  await page.getByRole("searchbox").fill("has no endpoint");
  await eventually(async () => assert.equal(await rows.count(), 1));
  await page.getByRole("searchbox").fill("");
  await eventually(async () => assert.equal(await rows.count(), 4));
  await page.getByRole("button", { name: "Pause" }).click();
  await connections();
  assert.equal(await rows.count(), 4);
  await page.getByRole("button", { name: "Go on" }).click();
  await eventually(async () => assert.equal(await rows.count(), 8));
}));

test("flows: where no agent can be reached, this is said", visit("large", async (page, wrong) => {
  await open(page, "flows", "no agent can be reached from here");
  await page.getByText("No connections can be shown.").waitFor();
  await eventually(() => assert.equal(wrong.length, 1, "the browser says that an answer was an error"));
  wrong.length = 0;
}));
