// Server-sent events from any replica: a connection that breaks is made anew at the next replica.

import { either, type Replicas, sleep, targetOf } from "./calls.js";
import { DhschedError, isJson, NotMinted, Refused, refusalOf, Unreachable, wordsOf } from "./errors.js";
import type { Json } from "./models.js";

const SILENCE_MS = 30_000; // A connection without a byte for this long is broken: servers send at least every ten seconds.
const HELD_MS = 1_000; // A connection that lasted this long counts as a success, even without events.
const LINE_CHARS_MAX = 1_048_576; // A longer line is of no server of ours: the connection is given up.

/** One event: its id (empty if the stream has none), its name and its data. */
export interface ServerSent {
  readonly id: string;
  readonly name: string;
  readonly data: Json;
}

/** Yield events until the reader stops, or `signal` aborts. If they have ids, none is missed and none comes twice. */
export async function* follow(
  replicas: Replicas,
  path: readonly string[],
  signal?: AbortSignal,
): AsyncGenerator<ServerSent, void> {
  const target = targetOf(path);
  const troubles: Record<string, string> = {};
  let tries = 0;
  let heard = performance.now();
  let last = "";
  for (;;) {
    const url = replicas.url;
    const began = performance.now();
    try {
      for await (const event of connection(replicas, url, target, last, signal)) {
        tries = 0;
        heard = performance.now();
        if (event === null) continue;
        last = event.id || last;
        yield event;
      }
      troubles[url] = "the stream ended";
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof Refused || error instanceof NotMinted) {
        if (error.status === 401 && tries === 0 && replicas.forget(url)) troubles[url] = wordsOf(error);
        else if (error.status < 500 && error.status !== 429) throw error;
      } else if (error instanceof DhschedError) throw error;
      else if (performance.now() - began >= HELD_MS && !(url in troubles)) tries = 0;
      troubles[url] = wordsOf(error);
    }
    replicas.leave(url);
    const pauseMs = replicas.backoffMs(tries);
    tries += 1;
    const silentMs = performance.now() + pauseMs - heard;
    if (silentMs > replicas.deadlineMs + SILENCE_MS) {
      const words = `no ${replicas.role} answered for ${Math.round(silentMs / 1000)} s`;
      throw new Unreachable(`GET ${target}: ${words} (the last at ${url}: ${troubles[url]})`, troubles);
    }
    await sleep(pauseMs, signal);
  }
}

/** Yield the events of one connection, and null for a keep-alive. */
async function* connection(
  replicas: Replicas,
  url: string,
  target: string,
  last: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<ServerSent | null, void> {
  const access = await replicas.access(url);
  const silence = new AbortController();
  const limit = (): ReturnType<typeof setTimeout> =>
    setTimeout(() => silence.abort(new Error(`nothing came for ${SILENCE_MS / 1000} s`)), SILENCE_MS);
  let timer = limit();
  try {
    const response = await replicas.fetch(url + target, {
      headers: { Accept: "text/event-stream", ...access, ...(last ? { "Last-Event-ID": last } : {}) },
      signal: either(silence.signal, signal),
    });
    if (response.status !== 200 || response.body === null) throw await refusalOf(response);
    let event = { id: "", name: "" };
    for await (const line of linesOf(response.body)) {
      clearTimeout(timer);
      timer = limit();
      const [key, value] = split(line);
      if (key === "id") event.id = value;
      else if (key === "event") event.name = value;
      else if (key === "data") {
        const data: unknown = JSON.parse(value);
        if (!isJson(data)) throw new Error("an event's data is not a JSON object");
        yield { ...event, data };
      } else if (line === "") event = { id: "", name: "" };
      else yield null;
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > LINE_CHARS_MAX) throw new Error(`a line has more than ${LINE_CHARS_MAX} characters`);
      yield* lines;
    }
  } finally {
    reader.releaseLock();
  }
}

function split(line: string): [string, string] {
  const at = line.indexOf(": ");
  return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 2)];
}
