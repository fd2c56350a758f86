// What each view says of the cluster in diagnose/web/testdata/page.yaml.

import assert from "node:assert/strict";
import { test } from "node:test";
import { apply, copied, eventually, open, remove, visit } from "./browser.mjs";

test("problems come first, the surest of them at the top", visit("small", async (page) => {
  await page.getByText("6 Services looked at by what the API says.").waitFor();
  assert.equal(await page.getByRole("navigation", { name: "Views" }).locator("[aria-current=page]").textContent().then((t) => t.replace(/\d+/, "")), "Problems");
  const marks = await page.locator(".problem > header .mark").allTextContents();
  const order = ["proved", "likely", "note"];
  assert.deepEqual(marks, [...marks].sort((a, b) => order.indexOf(a) - order.indexOf(b)));
  assert.equal(marks[0], "proved");
  const cart = page.locator(".problem", { hasText: "FW101" });
  assert.match(await cart.innerText(), /shop\/cart[^]*app=web would match 3[^]*Fix/);
  assert.match(await page.locator("main").innerText(), /node3[^]*kubelet stopped/);

  await page.getByRole("group", { name: "Grade" }).getByRole("button", { name: "likely" }).click();
  await eventually(async () => assert.deepEqual([...new Set(await page.locator(".problem > header .mark").allTextContents())], ["likely"]));
}));

test("search finds a Service by name, address, port, selector and code", visit("small", async (page) => {
  await page.getByRole("link", { name: "Services" }).click();
  await page.getByText("6 Services", { exact: true }).waitFor();
  const search = page.getByRole("searchbox");
  for (const [text, names] of Object.entries({
    web: ["shop/web"], "10.96.0.12": ["shop/orders"], "fd00:96::10": ["shop/web"], "203.0.113.7": ["shop/payments"], 30443: ["shop/payments"],
    "app=orders": ["shop/orders"], fw101: ["shop/cart"], "kube-dns.kube-system.svc": ["kube-system/kube-dns"], "mail.example": ["shop/mail"],
    "shop http": ["shop/cart", "shop/orders", "shop/payments", "shop/web"], nothing: [],
  })) {
    await search.fill(text);
    await page.getByText(new RegExp(`^${names.length} of 6 Services`)).waitFor();
    await eventually(async () => assert.deepEqual(await page.locator(".list [data-item]").allTextContents(), names, text));
  }
  await search.fill("");
  await page.getByRole("combobox", { name: "Order" }).selectOption("worst");
  await eventually(async () => assert.equal((await page.locator(".list [data-item]").allTextContents())[0], "shop/cart"));
}));

test("a Service: the answer, each endpoint with its reason, the topology", visit("small", async (page) => {
  await open(page, "services/shop/web", "Where packets go");
  const endpoints = page.getByRole("region", { name: "Endpoints" });
  const row = (address) => endpoints.locator("tbody tr", { hasText: address }).innerText();
  await eventually(async () => assert.equal(await endpoints.locator("tbody tr").count(), 5));
  assert.match(await row("10.244.1.2"), /10\.244\.1\.2:8080[^]*web-1[^]*node1 \(east\)[^]*50 %/);
  assert.match(await row("10.244.2.2"), /10\.244\.2\.2:8080[^]*web-2[^]*node2 \(west\)[^]*50 %/);
  assert.match(await row("10.244.2.3"), /web-3[^]*not ready since/);
  assert.match(await row("fd00:1::2"), /–[^]*family/);
  const drawing = page.getByRole("region", { name: "Topology" }).getByRole("img");
  assert.equal(await drawing.getAttribute("aria-label"), "web: 1 port, 5 endpoints of which 4 take connections, on 2 nodes");
  assert.equal(await drawing.locator(".box.off").count(), 1);
  assert.equal(await drawing.locator(".edge.on").count(), 9, "to the port, to four endpoints, and from these to their nodes");

  await page.getByRole("combobox", { name: "to" }).selectOption("[fd00:96::10]:80/tcp");
  await eventually(async () => assert.match(await row("fd00:1::2"), /50 %/));

  await page.getByRole("textbox", { name: "From" }).fill("pod/nobody");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByRole("alert").filter({ hasText: "nobody" }).waitFor();
  await page.getByRole("textbox", { name: "From" }).fill("pod/web-1");
  await page.getByRole("button", { name: "Ask" }).click();
  await eventually(async () => assert.match(await page.locator("main").innerText(), /fairway explain svc\/web -n shop --from pod\/web-1/));
  await eventually(async () => assert.equal(await page.getByRole("alert").count(), 0));
}));

test("a Service that can't answer says why, and what would", visit("small", async (page, wrong) => {
  await open(page, "services/shop/orders", "Diagnosis");
  await page.locator(".banner.bad").first().waitFor();
  assert.match(await page.locator("main").innerText(), /FW102[^]*Fix/);
  await page.getByRole("link", { name: "FW102" }).click();
  await page.getByRole("heading", { level: 1, name: "FW102" }).waitFor();
  await page.getByRole("link", { name: "Services with FW102" }).click();
  await eventually(async () => assert.deepEqual(await page.locator(".list [data-item]").allTextContents(), ["shop/orders"]));

  await open(page, "services/shop/orders", "Diagnosis");
  await page.getByRole("button", { name: "Examine in full" }).click();
  await page.getByRole("alert").filter({ hasText: "shop/orders: this page has no endpoints" }).waitFor();
  await eventually(() => assert.equal(wrong.length, 1, "the browser says that an answer was an error"));
  wrong.length = 0;

  await open(page, "services/shop/none", "there is no Service");
}));

test("nodes: mode, state of the agent, what was left out", visit("small", async (page) => {
  await open(page, "nodes", "3 nodes");
  const card = (name) => page.getByRole("article", { name });
  assert.match(await card("node1").innerText(), /ready[^]*in step[^]*nftables[^]*6 Services in force/);
  assert.match(await card("node2").innerText(), /behind[^]*ebpf[^]*Not in force: shop\/orders:http: port 30080 is taken/);
  assert.match(await card("node3").innerText(), /not ready[^]*connection refused/);
  await page.getByRole("searchbox").fill("ebpf");
  await eventually(async () => assert.deepEqual(await page.getByRole("article").evaluateAll((list) => list.map((a) => a.getAttribute("aria-label"))), ["node2"]));
}));

const guest = (ready) => `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: guest-4, labels: {kubernetes.io/service-name: guest}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.9], nodeName: node1, conditions: {ready: ${ready}}}]`;

test("changes are shown as they come, in every view", visit("small", async (page) => {
  const count = (view) => page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: view }).locator(".count");
  await eventually(async () => assert.equal(await count("Services").textContent(), "6"));
  const before = Number(await count("Problems").textContent());
  await open(page, "changes", "since this page was started");
  await apply(`
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: guest}
spec: {type: ClusterIP, clusterIP: 10.96.0.90, clusterIPs: [10.96.0.90], ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: 8080}]}`);
  await apply(guest(false));
  const table = page.getByRole("region", { name: "Changes" });
  await table.getByText("endpoint 10.244.1.9 is new, not ready").waitFor();
  await eventually(async () => assert.equal(await count("Services").textContent(), "7"));
  await eventually(async () => assert.equal(Number(await count("Problems").textContent()), before + 1));
  await open(page, "services/shop/guest", "Where packets go");
  await eventually(async () => assert.match(await page.locator(".bar .ready").innerText(), /0 of 1/));
  await apply(guest(true));
  await eventually(async () => assert.match(await page.locator(".bar .ready").innerText(), /1 of 1/));
  await page.locator(".banner.good.answer").waitFor();
  await page.getByText("endpoint 10.244.1.9 is ready", { exact: true }).waitFor();
  await remove("endpointslices", "shop", "guest-4");
  await remove("services", "shop", "guest");
  await open(page, "changes", "the Service is gone");
  await eventually(async () => assert.equal(await count("Services").textContent(), "6"));
  await eventually(async () => assert.equal(Number(await count("Problems").textContent()), before));
}));

test("commands are copied with what they need, and quoted", visit("small", async (page) => {
  await open(page, "services/shop/web", "The same as commands");
  await page.getByRole("button", { name: "Copy: fairway explain svc/web -n shop --kubeconfig '/tmp/my config'" }).click();
  assert.equal(await copied(page), "fairway explain svc/web -n shop --kubeconfig '/tmp/my config'");
  for (const view of ["problems", "nodes", "flows", "services/shop/cart", "causes/FW101"]) {
    await open(page, view, /./);
    const list = page.locator("main [data-copy]");
    await list.first().waitFor();
    for (const text of await list.evaluateAll((all) => all.map((b) => b.getAttribute("aria-label")))) assert.match(text, /^Copy: (fairway|kubectl) /, view);
  }
}));
