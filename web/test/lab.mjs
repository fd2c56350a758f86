// The page of a lab of two nodes, whose agents are asked by way of its API server: what they
// have in force, and what they count. TestPageOfLab of package lab runs this.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { audit, close, eventually, launch, open, picture, pull, visit } from "./browser.mjs";

before(launch);
after(close);

test("nodes elsewhere say how they are", visit("lab", async (page) => {
  await open(page, "nodes", "node1");
  const nodes = page.locator("main");
  await eventually(async () => {
    const text = await nodes.innerText();
    for (const node of ["node1", "node2"]) assert.match(text, new RegExp(`${node}\\s+ready\\s+in step\\s+Mode\\s+nftables\\s+Version`));
  });
}));

test("a Service is explained by the agents of both nodes, and has its rates", visit("lab", async (page) => {
  await open(page, "services/default/web", "Where packets go");
  await page.getByText(/the agent of node1, node2 \(nftables\) has it in force/).waitFor();
  const rows = page.getByRole("region", { name: "Traffic by node" }).locator("tbody tr");
  await eventually(async () => assert.equal(await rows.count(), 2));
  await eventually(async () => {
    await pull("connect/web", "");
    const cells = await rows.filter({ hasText: "node1" }).locator("td").allTextContents();
    assert.ok(Number(cells[1]) > 0 && Number(cells[2]) > 0, `connections, and a second: ${cells}`);
    assert.equal(cells[3], "0", "refused packets");
  });
  await page.getByText("New connections and refused packets per second").waitFor();
  await audit(page, "the traffic of a Service");
  await page.getByRole("region", { name: "Traffic by node" }).scrollIntoViewIfNeeded();
  await picture(page, "traffic");
}));

test("a Service without endpoints has refusals, and why", visit("lab", async (page) => {
  await open(page, "services/default/none", "Where packets go");
  const row = page.getByRole("region", { name: "Traffic by node" }).locator("tbody tr", { hasText: "node1" });
  await eventually(async () => {
    await pull("connect/none", "");
    const cells = (await row.locator("td").allTextContents()).map((text) => text.replaceAll(",", ""));
    assert.ok(Number(cells[3]) > 0 && Number(cells[4]) > 0, `refused packets, and a second: ${cells}`);
    assert.equal(cells[1], "0", "connections");
  });
}));

test("an agent that ends is said, and the rest is shown", visit("lab", async (page) => {
  await open(page, "services/default/web", "Where packets go");
  await pull("freeze/node2", "");
  try {
    const rows = page.getByRole("region", { name: "Traffic by node" }).locator("tbody tr");
    await eventually(async () => assert.match(await rows.filter({ hasText: "node2" }).innerText(), /doesn't answer/));
    assert.doesNotMatch(await rows.filter({ hasText: "node1" }).innerText(), /doesn't answer/);
  } finally {
    await pull("thaw/node2", "");
  }
}));
