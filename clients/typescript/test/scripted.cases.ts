// What a real deployment does too rarely to wait for: a scripted server loses answers, connections and stored items.

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, Refused, Unreachable } from "@dhsched/client";
import { WebSocket, WebSocketServer } from "ws";

interface Item {
  readonly n: number;
  readonly text: string;
}
type Say = (...answers: object[]) => void;

/** Serve HTTP and WebSockets by these functions for as long as `use` runs. */
async function serving(
  use: (url: string) => Promise<void>,
  answer: (request: IncomingMessage, response: ServerResponse, body: string) => void,
  hear: (items: Item[], say: Say, socket: WebSocket, producer: string) => void = () => {},
): Promise<void> {
  const server: Server = createServer((request, response) => {
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => answer(request, response, body));
  });
  const sockets = new WebSocketServer({ server });
  sockets.on("connection", (socket, request) => {
    const producer = new URL(request.url ?? "", "http://x").searchParams.get("producer") ?? "";
    const say: Say = (...answers) => socket.send(JSON.stringify(answers));
    socket.on("message", (data) => hear(JSON.parse(String(data)) as Item[], say, socket, producer));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    sockets.clients.forEach((socket) => socket.terminate());
    server.closeAllConnections();
    server.close();
  }
}

test("a call whose answer is lost is repeated with the same id, at the next replica", async () => {
  const ids: unknown[] = [];
  const note = (body: string): void => void ids.push((JSON.parse(body) as { request_id: string }).request_id);
  const lost = (request: IncomingMessage, _: ServerResponse, body: string): void => {
    note(body);
    request.socket.destroy();
  };
  const stored = (_: IncomingMessage, response: ServerResponse, body: string): void => {
    note(body);
    response.end('{"live_id": "L", "request_id": "x", "seq": 1}');
  };
  await serving(async (first) => {
    await serving(async (second) => {
      const client = new Client([first, second]);
      assert.equal((await client.push("L", "One.")).seq, 1);
      assert.equal((await client.push("L", "Two.")).seq, 1);
    }, stored);
  }, lost);
  assert.equal(ids.length, 3, "the replica that answered is asked first the next time");
  assert.equal(ids[0], ids[1]);
  assert.notEqual(ids[1], ids[2]);
});

test("a refusal that passes is tried again after the pause that the server asks for", async () => {
  let calls = 0;
  await serving(
    async (url) => {
      const client = new Client(url);
      assert.equal((await client.get("L")).live_id, "L");
      calls = -1_000;
      const error = await new Client(url, { deadlineMs: 200 }).get("L").catch((found: unknown) => found);
      // At the deadline: the refusal itself, or that the last try was not answered any more.
      const refused = error instanceof Unreachable ? error.refused : error;
      assert(refused instanceof Refused && refused.code === "BUSY", String(error));
    },
    (_, response) => {
      calls += 1;
      if (calls < 3) response.writeHead(503, { "Retry-After": "0" }).end('{"code": "BUSY", "detail": "at its limit"}');
      else response.end('{"live_id": "L"}');
    },
  );
  assert(calls < 0);
});

test("another id is drawn where the cell is full and another is not, and never after a lost answer", async () => {
  const ids: string[] = [];
  const full = '{"code": "FULL", "detail": "all Workers are full", "elsewhere": true}';
  let script: string[] = [];
  await serving(
    async (url) => {
      const client = new Client(url);
      script = [full, full, ""];
      assert.equal((await client.create("anna")).live_id, "L");
      assert.equal(new Set(ids.splice(0)).size, 3);
      script = ["lost", full];
      const error = await client.create("anna").catch((found: unknown) => found);
      assert(error instanceof Refused && error.code === "FULL" && error.unknown, String(error));
      assert.equal(new Set(ids.splice(0)).size, 1);
      script = [full];
      await assert.rejects(client.create("anna", { live_id: "mine" }));
      assert.deepEqual(ids, ["mine"]);
    },
    (request, response, body) => {
      ids.push((JSON.parse(body) as { live_id: string }).live_id);
      const answer = script.shift();
      if (answer === "lost") request.socket.destroy();
      else if (answer) response.writeHead(503).end(answer);
      else response.writeHead(201).end('{"live_id": "L", "worker": "w#1", "epoch": 1}');
    },
  );
});

test("items without an answer are sent again on the next connection, with the same numbers", async () => {
  const heard: string[] = [];
  const names = new Set<string>();
  await serving(
    async (url) => {
      const stream = new Client(url, { webSocket: WebSocket }).stream("L");
      for (const text of ["a", "b", "c"]) await stream.send(text);
      await stream.close();
    },
    (_, response) => response.writeHead(400).end("{}"),
    (items, say, socket, producer) => {
      names.add(producer);
      for (const { n, text } of items) {
        heard.push(`${n}${text}`);
        if (heard.length === 1) return socket.terminate();
        say({ live: "L", n, seq: n });
      }
    },
  );
  assert.deepEqual(heard, ["1a", "1a", "2b", "3c"]);
  assert.equal(names.size, 1);
});

test("a store that has lost answered items is sent them again", async () => {
  const heard: string[] = [];
  let last = 0;
  await serving(
    async (url) => {
      const stream = new Client(url, { webSocket: WebSocket }).stream("L");
      for (const text of ["a", "b", "c", "d"]) await stream.push(text);
      last = 1; // The store fails over, and has forgotten b, c and d.
      await stream.push("e");
      await stream.close();
      assert.equal(stream.lost, 0);
    },
    (_, response) => response.writeHead(400).end("{}"),
    (items, say) => {
      for (const { n, text } of items) {
        if (n > last + 1) return say({ live: "L", n, problem: { code: "GAP", status: 409, detail: "a gap", last } });
        last = n;
        heard.push(text);
        say({ live: "L", n, seq: n });
      }
    },
  );
  assert.equal(heard.join(""), "abcdbcde");
});

test("a name that the store has forgotten is replaced, and its next stream loses nothing", async () => {
  const stored = new Map<string, string[]>();
  await serving(
    async (url) => {
      const client = new Client(url, { webSocket: WebSocket });
      for (const text of ["a", "b"]) {
        const stream = client.stream("L");
        await stream.push(text);
        await stream.close();
        stored.clear();
      }
      const stream = client.stream("L");
      await stream.send("c");
      await stream.send("d");
      await stream.close();
    },
    (_, response) => response.writeHead(400).end("{}"),
    (items, say, _, producer) => {
      const found = stored.get(producer) ?? [];
      for (const { n, text } of items) {
        const last = found.length;
        if (n > last + 1) return say({ live: "L", n, problem: { code: "GAP", status: 409, detail: "a gap", last } });
        found.push(text);
        stored.set(producer, found);
        say({ live: "L", n, seq: n });
      }
    },
  );
  assert.deepEqual([...stored.values()], [["c", "d"]]);
});

test("a stream that gets nothing stored fails at its deadline, and says why", async () => {
  await serving(
    async (url) => {
      const stream = new Client(url, { webSocket: WebSocket, deadlineMs: 300 }).stream("L");
      const error = await stream.push("a").catch((found: unknown) => found);
      assert(error instanceof Unreachable, String(error));
      assert.match(error.message, /nothing was stored.*full/);
      stream.abandon();
    },
    (_, response) => response.writeHead(400).end("{}"),
    (items, say) => {
      const problem = { code: "TOO_MANY_PENDING", status: 429, detail: "the queue is full" };
      say(...items.map(({ n }) => ({ live: "L", n, problem })));
    },
  );
});

test("a connection that answers nothing is given up, and the next one gets the items", { timeout: 120_000 }, async () => {
  const connections = new Set<WebSocket>();
  await serving(
    async (url) => {
      const stream = new Client(url, { webSocket: WebSocket, deadlineMs: 60_000 }).stream("L");
      assert.equal((await stream.push("a")).seq, 1);
      await stream.close();
    },
    (_, response) => response.writeHead(400).end("{}"),
    (items, say, socket) => {
      connections.add(socket);
      if (connections.size > 1) say(...items.map(({ n }) => ({ live: "L", n, seq: n })));
    },
  );
  assert.equal(connections.size, 2);
});
