// The client against a real deployment.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { Client, NotMinted, Refused, REMEDIES, Unreachable, viewerLink, type LiveEvent } from "@dhsched/client";
import { at, until } from "./deployment.js";

test("the types are made from the document that a replica serves", async () => {
  const { token } = JSON.parse(await at.dhsched("key", "mint", "--json")) as { token: string };
  const response = await fetch(`${at.dispatch[0]}/openapi.json`, { headers: { Authorization: `Bearer ${token}` } });
  assert.equal(response.status, 200);
  const built = await readFile(new URL("../../openapi/dispatch.json", import.meta.url), "utf8");
  assert.deepEqual(await response.json(), JSON.parse(built));
});

test("create, read, change, list, reassign, end", async () => {
  const client = at.client();
  const placed = await client.create("anna", { live_id: "calls", metadata: { user: 7 }, labels: ["a=1"], wait_s: 20 });
  assert.equal(placed.live_id, "calls");
  assert.equal((await client.create("anna", { live_id: "calls", metadata: { user: 7 }, labels: ["a=1"] })).again, true);
  assert.deepEqual((await client.get("calls")).metadata, { user: 7 });
  assert.deepEqual((await client.change("calls", { labels: ["b=2"] })).labels, ["b=2"]);
  const listed: string[] = [];
  for await (const live of client.list({ label: "b=2" })) listed.push(live.live_id);
  assert.deepEqual(listed, ["calls"]);
  await assert.rejects(client.reassign("calls"), (error: Refused) => error.code === "FORBIDDEN", "an app may not");
  const moved = await at.client({ key: at.adminKey }).reassign("calls", { avoid: [placed.worker] });
  assert.notEqual(moved.worker, placed.worker);
  assert.equal(moved.epoch, placed.epoch + 1);
  assert.deepEqual((await client.history("calls")).generations.map((each) => each.epoch), [2, 1]);
  assert.equal((await client.end("calls")).live_id, "calls");
  assert.equal((await client.get("calls")).state, "ended");
});

test("one item at a time, an interrupt, a configuration", async () => {
  const client = at.client({ infer: at.url("infer-1") });
  const { live_id } = await client.create("anna", { wait_s: 20 });
  assert.equal((await client.push(live_id, "One.", { boundary: true, request_id: "r1" })).seq, 1);
  const again = await client.push(live_id, "One.", { boundary: true, request_id: "r1" });
  assert.equal(again.duplicate, true);
  assert.equal((await client.interrupt(live_id, "Two.")).seq, 2);
  assert.equal((await client.configure(live_id, { voice: "low" })).seq, 3);
  await until(async () => (await client.get(live_id)).acked === 3, "three acks");
  await client.end(live_id);
});

test("events come as they happen, until the end of the live", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const seen: LiveEvent[] = [];
  const reading = (async () => {
    for await (const event of client.events(live_id)) seen.push(event);
  })();
  await client.push(live_id, "Hello.", { boundary: true });
  await until(() => seen.some(({ name, data }) => name === "acked" && data["acked"] === 1), "an ack");
  await client.end(live_id);
  await reading;
  const names = seen.map(({ name }) => name);
  assert(names.includes("claimed"), names.join());
  assert.equal(names.at(-1), "ended");
});

test("a reader of events stops when it wants to", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  for await (const event of client.events(live_id)) {
    assert.equal(typeof event.name, "string");
    break;
  }
  const stop = new AbortController();
  const reading = (async () => {
    for await (const _ of client.events(live_id, { signal: stop.signal })) stop.abort(new Error("enough"));
  })();
  await assert.rejects(reading, /enough/);
  await client.end(live_id);
});

test("a viewer token is for one live, and a link has it behind the #", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { live_id: "seen", wait_s: 20 });
  const minted = await client.viewerToken(live_id, { grants: ["watch", "say"], identity: "Ben", ttl_s: 60 });
  assert.equal(minted.live_id, live_id);
  assert.equal(minted.expires_in_s, 60);
  assert.equal(viewerLink("https://room.example/", minted), `https://room.example/live/seen#token=${minted.token}`);
  await client.end(live_id);
});

test("a refusal has its code, its remedy and its numbers", async () => {
  const client = at.client();
  const refused = await client.get("nobody").catch((error: unknown) => error);
  assert(refused instanceof Refused);
  assert.deepEqual([refused.code, refused.status, refused.remedy], ["NOT_FOUND", 404, REMEDIES.NOT_FOUND]);
  assert.match(refused.message, /nobody.*\(NOT_FOUND\)/);
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const large = await client.push(live_id, "x".repeat(40_000)).catch((error: unknown) => error);
  assert(large instanceof Refused && large.code === "TOO_LARGE", String(large));
  await client.end(live_id);
  await assert.rejects(client.push(live_id, "late"), (error: Refused) => error.code === "ENDED");
  await assert.rejects(client.create("nobody"), (error: Refused) => error instanceof Refused && error.status < 500);
});

test("a key that is not valid mints no token", async () => {
  const client = at.client({ key: `${at.key.slice(0, -4)}aaaa` });
  const error = await client.get("calls").catch((found: unknown) => found);
  assert(error instanceof NotMinted, String(error));
  assert.equal(error.code, "UNAUTHORIZED");
  await assert.rejects(at.client({ token: "none" }).get("calls"), (found: Refused) => found.code === "UNAUTHORIZED");
});

test("a replica that is down is left for the next", async () => {
  const client = at.client({}, ["http://127.0.0.1:1", ...at.dispatch]);
  const { live_id } = await client.create("anna", { wait_s: 20 });
  assert.equal((await client.get(live_id)).state, "open");
  await client.end(live_id);
});

test("no replica at all is told with what went wrong at each", async () => {
  const client = new Client(["http://127.0.0.1:1"], { deadlineMs: 300 });
  const error = await client.get("calls").catch((found: unknown) => found);
  assert(error instanceof Unreachable, String(error));
  assert.deepEqual(Object.keys(error.troubles), ["http://127.0.0.1:1"]);
  assert.throws(() => new Client("nowhere"), /must look like/);
});
