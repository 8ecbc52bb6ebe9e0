// All tests, with one deployment.

import { after, before } from "node:test";

import { at, start } from "./deployment.js";

before(start);
after(() => at?.stop());

await import("./scripted.cases.js");
await import("./client.cases.js");
await import("./stream.cases.js");
await import("./live.cases.js");
await import("./examples.cases.js");
