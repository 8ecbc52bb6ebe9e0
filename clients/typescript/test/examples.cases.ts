// The examples of the guide: each is in it word for word, and runs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { at, ROOT } from "./deployment.js";

const PACKAGE = join(ROOT, "clients/typescript");

async function isInTheGuide(name: string): Promise<void> {
  const [guide, example] = await Promise.all([
    readFile(join(ROOT, "docs/guides/typescript.md"), "utf8"),
    readFile(join(PACKAGE, "examples", name), "utf8"),
  ]);
  assert(guide.includes(`\`\`\`${name.split(".").at(-1)}\n${example}\`\`\``), `the guide has not the text of ${name}`);
}

/** Run an example. Return what it printed. */
async function run(name: string, key: string): Promise<{ stdout: string; stderr: string }> {
  const env = { ...process.env, DHSCHED_URL: at.dispatch.join(","), DHSCHED_KEY: key };
  const file = join(PACKAGE, "build/tests/examples", name.replace(/ts$/, "js"));
  return promisify(execFile)(process.execPath, [file], { env, timeout: 60_000 });
}

test("the guide has the example that shows a live in a page, which a browser runs (tests/browser/test_component.py)", async () => {
  await isInTheGuide("embed.ts");
  await isInTheGuide("embed.html");
});

test("the first example of the guide runs", async () => {
  await isInTheGuide("tell.ts");
  const { stdout } = await run("tell.ts", at.key);
  const lines = stdout.trim().split("\n");
  assert.match(lines.at(-1) ?? "", /^ended /);
  assert(lines.some((line) => line.startsWith('acked {')), stdout);
  const refused = await run("tell.ts", at.adminKey.slice(0, -4) + "aaaa").catch((error: unknown) => error);
  assert.match(String((refused as { stderr?: string }).stderr), /mints no token/);
});
