// WebSockets in node and in browsers. A token travels in a header, which the WebSocket of a browser cannot send.

import { Refused, refusalOf } from "./errors.js";
import type { Fetch, Headers } from "./tokens.js";

const CONNECT_MS = 5_000; // A replica that does not accept the connection for this long is left for the next.

/** What the client uses of a WebSocket: that of browsers, of node 22, and of the package `ws` have it. */
export interface Socket {
  readonly readyState: number;
  send(data: string): void;
  close(): void;
  addEventListener(kind: "open" | "close" | "error", hear: () => void): void;
  addEventListener(kind: "message", hear: (event: { data: unknown }) => void): void;
}

/** A class of WebSockets that takes headers in its third argument, as that of the package `ws` does. */
export type SocketClass = new (url: string, protocols: string[], options: { headers: Headers }) => Socket;

type Plain = new (url: string, options?: { headers: Headers }) => Socket;

/** Return how to open a WebSocket with these headers here; null where that is not possible. */
export function opener(given: SocketClass | undefined, headers: Headers): ((url: string) => Socket) | null {
  if (given !== undefined) return (url) => new given(url, [], { headers });
  const here = globalThis as { WebSocket?: Plain; process?: { versions?: { node?: string } } };
  const made = here.WebSocket;
  if (made === undefined) return null;
  if (Object.keys(headers).length === 0) return (url) => new made(url);
  return here.process?.versions?.node === undefined ? null : (url) => new made(url, { headers });
}

/** Open a WebSocket. Throw `Refused` if the server says why it refuses, else an error. */
export async function open(make: (url: string) => Socket, url: string, headers: Headers, fetch: Fetch): Promise<Socket> {
  const socket = make(url.replace(/^http/, "ws"));
  const opened = await new Promise<boolean>((done) => {
    const timer = setTimeout(() => done(false), CONNECT_MS);
    const settle = (is: boolean) => (): void => {
      clearTimeout(timer);
      done(is);
    };
    socket.addEventListener("open", settle(true));
    socket.addEventListener("error", settle(false));
    socket.addEventListener("close", settle(false));
  });
  if (opened) return socket;
  socket.close();
  throw await whyNot(url, headers, fetch);
}

/** Ask for the reason by HTTP: a WebSocket that was not opened does not tell it. */
async function whyNot(url: string, headers: Headers, fetch: Fetch): Promise<Error> {
  const response = await fetch(url, { headers, signal: AbortSignal.timeout(CONNECT_MS) });
  const refused = response.ok ? null : await refusalOf(response);
  // A request that only lacks the upgrade was refused for nothing else: the trouble was in between, and may be over.
  if (refused instanceof Refused && refused.code !== "BAD_REQUEST") return refused;
  return new Error("the WebSocket was not opened; a proxy in between must let WebSockets through");
}
