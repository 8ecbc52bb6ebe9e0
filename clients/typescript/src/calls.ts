// The rules of one call: over the replicas, to its end, and never past its deadline.
//
// - The replica that answered last is asked first; a replica that does not answer, or answers that it cannot serve now,
//   is left for the next.
// - A call is repeated until its deadline, with growing pauses. Every call of this client may be done twice: it changes
//   nothing, or carries an id by which the server does it once.
// - An error document becomes `Refused`, no answer `Unreachable`, a key that gets no token `NotMinted`.
// - A token that is refused is renewed once, at once: a secret may have been rotated since.

import { DhschedError, NotMinted, Refused, refusalOf, Unreachable, wordsOf } from "./errors.js";
import { type Fetch, type Headers, Minter } from "./tokens.js";

/** Refusals worth repeating. FULL is not among them: `wait_s` of a create waits for a free slot in the queue. */
export const AGAIN: ReadonlySet<string> = new Set([
  "STORE_UNAVAILABLE",
  "BUSY",
  "NOT_READY",
  "INTERNAL",
  "STARTING",
  "RATE_LIMITED",
  "TIMEOUT",
]);
/** The codes of AGAIN after which the call was surely not done. */
const NOTHING_DONE: ReadonlySet<string> = new Set(["BUSY", "NOT_READY", "RATE_LIMITED", "TIMEOUT", "STARTING"]);
const BACKOFF_FIRST_MS = 50; // Pause after the first failed try; doubled after each, up to:
const BACKOFF_MAX_MS = 2_000;
const TRY_MS = 10_000; // A replica that does not answer for this long (plus the call's wait) is left for the next.

export interface CallOptions {
  readonly body?: unknown;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly headers?: Headers;
  /** How long the server may wait before it answers. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal | undefined;
  /** Whether a refusal is thrown at once, although its code is one of `AGAIN`. */
  readonly isFinal?: ((refused: Refused) => boolean) | undefined;
}

/** The replicas of one role. */
export class Replicas {
  readonly urls: readonly string[];
  #at = 0;
  readonly #minters: ReadonlyMap<string, Minter>;

  constructor(
    readonly role: string,
    urls: string | readonly string[],
    key: string,
    /** Headers of every request: a token that was given, and whose lives are meant. */
    readonly headers: Headers,
    readonly deadlineMs: number,
    readonly fetch: Fetch,
  ) {
    this.urls = addresses(role, urls);
    this.#minters = new Map(this.urls.map((url) => [url, new Minter(fetch, url, key)]));
  }

  /** The replica to ask first. */
  get url(): string {
    return this.urls[this.#at] as string;
  }

  /** Ask the next replica first from now on, unless another call has already left this one. */
  leave(url: string): void {
    if (this.url === url) this.#at = (this.#at + 1) % this.urls.length;
  }

  backoffMs(tries: number): number {
    return Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(tries, 10)) * (0.5 + Math.random() / 2);
  }

  /** Return the headers of a request to this replica. */
  async access(url: string): Promise<Headers> {
    return { ...this.headers, ...(await this.#minters.get(url)?.headers()) };
  }

  /** Drop the token that this replica refused. Return whether there is a key to mint another with. */
  forget(url: string): boolean {
    return this.#minters.get(url)?.forget() ?? false;
  }

  /** Send a call and return its answer. The parts of `path` are quoted: a WorkerID has a `#`. */
  async call<T>(method: string, path: readonly string[], options: CallOptions = {}): Promise<T> {
    const waitMs = options.waitMs ?? 0;
    const target = targetOf(path, options.query);
    const giveUp = performance.now() + this.deadlineMs + waitMs;
    const order = [...this.urls.slice(this.#at), ...this.urls.slice(0, this.#at)];
    const troubles: Record<string, string> = {};
    let refusal: Refused | null = null;
    let unknown = false; // Whether an earlier try may have been done.
    for (let tries = 0; ; tries += 1) {
      const url = order[tries % order.length] as string;
      let pauseMs = this.backoffMs(tries);
      const left = Math.ceil(Math.max(10, Math.min(giveUp - performance.now(), TRY_MS + waitMs)));
      try {
        const answer = (await this.#try(url, method, target, options, left)) as T;
        this.#at = this.urls.indexOf(url);
        return answer;
      } catch (error) {
        options.signal?.throwIfAborted();
        if (error instanceof Refused || error instanceof NotMinted) {
          if (error instanceof Refused) {
            error.unknown = unknown;
            unknown ||= !NOTHING_DONE.has(error.code);
            if (options.isFinal?.(error)) throw error;
          }
          if (!AGAIN.has(error.code) && !isOverRate(error)) throw error;
          if (error instanceof Refused) {
            refusal = error;
            pauseMs = Math.max(pauseMs, error.retryAfterMs ?? 0);
          }
          if (performance.now() + pauseMs >= giveUp) throw error;
        } else if (error instanceof DhschedError) throw error;
        else unknown = true;
        troubles[url] = wordsOf(error);
      }
      this.leave(url);
      if (performance.now() + pauseMs >= giveUp) {
        const waited = (this.deadlineMs + waitMs) / 1000;
        const last = `${tries + 1} tries, the last at ${url}: ${troubles[url]}`;
        throw new Unreachable(
          `${method} ${target}: no ${this.role} answered within ${waited} s (${last})`,
          troubles,
          refusal,
        );
      }
      await sleep(pauseMs, options.signal);
    }
  }

  /** Send the call to one replica, and once more with a new token if the first token was refused. */
  async #try(url: string, method: string, target: string, options: CallOptions, ms: number): Promise<unknown> {
    for (let renewed = false; ; renewed = true) {
      const response = await this.fetch(url + target, {
        method,
        headers: { "Content-Type": "application/json", ...(await this.access(url)), ...options.headers },
        body: options.body === undefined ? null : JSON.stringify(options.body),
        signal: either(AbortSignal.timeout(ms), options.signal),
      });
      if (response.ok) return response.status === 204 ? null : await response.json();
      const refused = await refusalOf(response);
      if (response.status !== 401 || renewed || !this.forget(url)) throw refused;
    }
  }
}

/** Return whether the tenant made too many requests: unlike its other limits, this one passes by itself. */
function isOverRate(error: Refused | NotMinted): boolean {
  return error instanceof Refused && error.problem["quota"] === "rate_per_s";
}

/** Return the addresses in `given`, in order and without a final slash. */
export function addresses(what: string, given: string | readonly string[]): string[] {
  const listed = typeof given === "string" ? given.split(",") : given;
  const found = listed.map((url) => url.trim().replace(/\/+$/, "")).filter((url) => url !== "");
  const like = "http://127.0.0.1:7400";
  if (found.length === 0) throw new DhschedError(`no address of ${what} was given; write it like ${like}`);
  for (const url of found) {
    if (!URL.canParse(url) || !/^https?:\/\//.test(url)) {
      throw new DhschedError(`${what} address '${url}' must look like ${like}; give several as a list`);
    }
  }
  return found;
}

export function targetOf(path: readonly string[], query: Readonly<Record<string, unknown>> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const asked = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `/v1/${path.map(encodeURIComponent).join("/")}${asked ? `?${asked}` : ""}`;
}

/** Return a signal that aborts with the first of the two. */
export function either(one: AbortSignal, other: AbortSignal | undefined): AbortSignal {
  return other === undefined ? one : AbortSignal.any([one, other]);
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const stop = (): void => {
      clearTimeout(timer);
      fail(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      done();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Return an id that nobody else makes: of a request, a live, a producer. Works in pages without HTTPS, too. */
export function newId(bytes = 16): string {
  return [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
