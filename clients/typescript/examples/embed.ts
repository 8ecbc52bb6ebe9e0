// Your server: it has the API key, knows who its users are, and gives each of them a link of their own.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

import { Client, viewerLink } from "@dhsched/client";

const { DHSCHED_URL = "http://127.0.0.1:7400", DHSCHED_KEY = "", ROOM_URL = "http://127.0.0.1:7402" } = process.env;
const { LIVE = "demo", PAGE = "embed.html", PORT = "8080" } = process.env;
const client = new Client(DHSCHED_URL, { key: DHSCHED_KEY });
const component = import.meta.resolve("@dhsched/client/live");

async function answer(path: string): Promise<[type: string, body: string | Buffer]> {
  if (path === "/") return ["text/html", await readFile(PAGE)];
  if (path === "/link") {
    const token = await client.viewerToken(LIVE, { grants: ["watch", "say", "interrupt"], identity: "Ben", ttl_s: 600 });
    return ["text/plain", viewerLink(ROOM_URL, token)];
  }
  const file = /^\/live\/([\w-]+\.js)$/.exec(path)?.[1]; // Or let a bundler do this.
  if (file === undefined) throw new Error(`nothing is at ${path}`);
  return ["text/javascript", await readFile(new URL(file, component))];
}

const server = createServer((request, response) => {
  answer(new URL(request.url ?? "/", "http://localhost").pathname).then(
    ([type, body]) => response.setHeader("Content-Type", `${type}; charset=utf-8`).end(body),
    (error: unknown) => response.writeHead(404).end(String(error)),
  );
});
server.listen(Number(PORT), "127.0.0.1", () => console.log(`http://localhost:${PORT}`));
