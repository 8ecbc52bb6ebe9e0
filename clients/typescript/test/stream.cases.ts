// Streams against a real deployment: nothing lost, doubled or reordered.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

import { Client, Refused } from "@dhsched/client";
import { at, until } from "./deployment.js";

/** All items are acked, and Workers consumed each of them: repeated at a take-over, never left out, in order. */
async function allConsumed(live: string, texts: string[]): Promise<void> {
  const client = at.client();
  await until(async () => (await client.get(live)).acked === texts.length, `${texts.length} acks`);
  const found = await client.get(live);
  assert.equal(found.appended, texts.length, "each item is stored once");
  const bySeq = () => new Map(at.of(live).map(({ seq, text }) => [seq, text]));
  await until(() => bySeq().size >= texts.length, "what the Workers print");
  assert.deepEqual(texts, texts.map((_, index) => bySeq().get(index + 1)));
}

const numbered = (count: number): string[] => Array.from({ length: count }, (_, n) => `Sentence ${n + 1}.`);

test("many items, in order, each exactly once", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const texts = numbered(500);
  const stream = client.stream(live_id, { inFlightMax: 64 });
  const first = await stream.push(texts[0] as string, { boundary: true });
  assert.equal(first.seq, 1);
  await Promise.all(texts.slice(1).map((text) => stream.send(text, { boundary: true })));
  await stream.close();
  assert.equal(stream.lost, 0);
  await allConsumed(live_id, texts);
  await assert.rejects(stream.push("late"), /was closed/);
  await client.end(live_id);
});

test("streams of one client share a name, and more of them than a live remembers store one by one", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const texts = numbered(12);
  for (const text of texts.slice(0, 3)) {
    const stream = client.stream(live_id);
    await stream.send(text);
    await stream.close();
  }
  const open = texts.slice(3).map((text) => ({ text, stream: client.stream(live_id) }));
  for (const { text, stream } of open) await stream.push(text);
  for (const { stream } of open) await stream.close();
  await allConsumed(live_id, texts);
  await client.end(live_id);
});

test("without a WebSocket that can send a token, items are stored one by one", async () => {
  const texts = numbered(8);
  const client = new Client(at.dispatch, { key: at.key });
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const stream = client.stream(live_id);
  for (const text of texts) await stream.send(text);
  await stream.close();
  await allConsumed(live_id, texts);
  await client.end(live_id);
});

test("the WebSocket of node itself sends the token (node 22 has it, node 20 with an option)", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const script = `
    import { Client } from ${JSON.stringify(import.meta.resolve("@dhsched/client"))};
    const { WebSocket } = globalThis;
    let opened = 0;
    globalThis.WebSocket = class extends WebSocket { constructor(...given) { super(...given); opened += 1; } };
    const stream = new Client(process.env.DHSCHED_URL, { key: process.env.DHSCHED_KEY }).stream("${live_id}");
    for (const text of ["Sentence 1.", "Sentence 2."]) await stream.send(text);
    await stream.close();
    console.log(opened);
  `;
  const env = { ...process.env, DHSCHED_URL: at.dispatch.join(","), DHSCHED_KEY: at.key };
  const given = ["--experimental-websocket", "--no-warnings", "--input-type=module", "--eval", script];
  const { stdout } = await promisify(execFile)(process.execPath, given, { env, timeout: 60_000 });
  assert.equal(stdout.trim(), "1");
  await allConsumed(live_id, ["Sentence 1.", "Sentence 2."]);
  await client.end(live_id);
});

test("tokens of a model become sentences", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const stream = client.stream(live_id);
  for (const token of ["Good", " morning. ", "How are", " you? ", "Bye"]) await stream.token(token);
  await stream.close();
  await allConsumed(live_id, ["Good morning. ", "How are you? ", "Bye"]);
  await client.end(live_id);
});

test("kill -9 of the Worker while items are pushed: nothing is lost", async () => {
  const client = at.client();
  const placed = await client.create("anna", { wait_s: 20 });
  const texts = numbered(400);
  const stream = client.stream(placed.live_id);
  for (const [n, text] of texts.entries()) {
    if (n === 200) process.kill(at.owner(placed.worker), "SIGKILL");
    await stream.push(text, { boundary: true });
  }
  await stream.close();
  await allConsumed(placed.live_id, texts);
  const { epoch, worker } = await client.get(placed.live_id);
  assert(epoch > 1 && worker !== placed.worker, `${worker} in epoch ${epoch}`);
  await client.end(placed.live_id);
});

test("kill -9 of the replicas, one after the other, while items are pushed: nothing is lost or doubled", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const texts = numbered(300);
  const stream = client.stream(live_id);
  const kill = (name: string) => process.kill(at.pids.get(name) as number, "SIGKILL");
  for (const [n, text] of texts.entries()) {
    if (n === 100) kill("dispatch-1");
    if (n === 200) {
      await until(() => at.printed.some((line) => line.startsWith("dispatch-1 is started again")), "dispatch-1");
      kill("dispatch-2");
    }
    await stream.send(text);
  }
  await stream.close();
  await allConsumed(live_id, texts);
  await client.end(live_id);
});

test("a stream to a live that has ended, or is not there, is refused", async () => {
  const client = at.client();
  const { live_id } = await client.create("anna", { wait_s: 20 });
  const stream = client.stream(live_id);
  await stream.push("One.");
  await client.end(live_id);
  const refused = await stream.push("Two.").catch((error: unknown) => error);
  assert(refused instanceof Refused && refused.code === "ENDED", String(refused));
  await assert.rejects(stream.close(), /ENDED/);
  const nobody = client.stream("nobody");
  await assert.rejects(nobody.push("One."), (error: Refused) => error.code === "NOT_FOUND");
  nobody.abandon();
  const stranger = at.client({ token: "none" }).stream("nobody");
  await assert.rejects(stranger.push("One."), (error: Refused) => error.code === "UNAUTHORIZED");
  stranger.abandon();
});
