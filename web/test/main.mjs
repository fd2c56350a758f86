// The page in a browser. `make check NAME=page` runs this, by TestPage of diagnose/web, which
// serves the pages and does what the steps ask of it.

import { after, before } from "node:test";
import { close, launch } from "./browser.mjs";

before(launch);
after(close);
await import("./guard.mjs");
await import("./views.mjs");
await import("./flows.mjs");
await import("./keys.mjs");
await import("./looks.mjs");
await import("./many.mjs");
