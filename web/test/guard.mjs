// Who gets the page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { printed, stranger, visit } from "./browser.mjs";

test("the printed URL is good for one browser", async () => {
  const url = await printed("small");
  const first = await stranger(), second = await stranger();
  try {
    await first.goto(url);
    await first.getByRole("heading", { name: "Problems", level: 1 }).waitFor();
    const [cookie] = await first.context().cookies();
    assert.equal(cookie?.httpOnly, true);
    assert.equal(cookie?.sameSite, "Strict");
    assert.equal(await first.evaluate(() => document.cookie), "", "scripts see the cookie");

    for (const path of [url, "/", "/main.js", "/api/v1/summary", "/api/v1/services", "/api/v1/events"]) {
      const answer = await second.goto(new URL(path, url).href);
      assert.equal(answer.status(), 403, path);
      assert.doesNotMatch(await second.content(), /shop/, path);
    }
    assert.deepEqual(await second.context().cookies(), []);

    await first.reload();
    await first.getByRole("heading", { name: "Problems", level: 1 }).waitFor();
  } finally {
    await first.context().close();
    await second.context().close();
  }
});

test("a name that isn't this machine's is refused, the token with it", async () => {
  const url = new URL(await printed("small"));
  const page = await stranger();
  try {
    const foreign = new URL(url);
    foreign.hostname = "rebound.example";
    const answer = await page.goto(foreign.href);
    assert.equal(answer.status(), 403);
    assert.match(await page.content(), /not to rebound\.example/);
    assert.deepEqual(await page.context().cookies(), []);
    assert.equal((await page.goto(url.href)).status(), 200, "the token was used up");
  } finally {
    await page.context().close();
  }
});

test("another site's page can't ask, though the browser has the cookie", visit("small", async (page, wrong) => {
  const own = new URL(page.url());
  const other = await page.context().newPage();
  await other.route("http://rebound.example/", (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><title>elsewhere</title>" }));
  await other.goto("http://rebound.example/");
  const got = await other.evaluate(async (url) => {
    try {
      return await (await fetch(url, { credentials: "include" })).text();
    } catch (e) {
      return "refused: " + e.name;
    }
  }, new URL("/api/v1/services", own).href);
  assert.equal(got, "refused: TypeError");
  const framed = await other.evaluate((url) => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.src = url;
    frame.onload = () => done(frame.contentDocument === null ? "foreign" : "own");
    document.body.append(frame);
  }), own.href);
  assert.equal(framed, "foreign");
  const frame = other.frames().find((f) => f.parentFrame());
  assert.doesNotMatch(await frame.content(), /id="page"/, "the page was framed");
  assert.deepEqual(wrong, []);
}));
