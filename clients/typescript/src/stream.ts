// Pushes many items over one WebSocket, exactly once each and in order, whatever happens to the connection.
//
// The stream is a producer with a name of its own and numbers its items. Items without an answer are kept; after a lost
// connection they are sent again, to another replica if need be, and the store knows each number: nothing is doubled,
// left out or reordered. Names are passed on from stream to stream (producers.ts).
//
// A store that fails over may have lost items that it had answered. Its next answer then is GAP, with the last number
// that it has, and the stream sends the lost ones again: it keeps the last KEPT_MAX items for that. `lost` counts those
// that were lost and not kept any more.
//
// A stream that finds no place among the producers that a live remembers stores its items one at a time, each with a
// request id: slower, and as exact. So does a stream in a browser that needs a token, which no WebSocket there can send.

import { AGAIN, type Replicas, sleep } from "./calls.js";
import { DhschedError, isJson, NotMinted, Refused, Unreachable, wordsOf } from "./errors.js";
import type { Json, Pushed, PushText } from "./models.js";
import { newProducer, type Producer, type Producers } from "./producers.js";
import { Sentences } from "./sentences.js";
import { open, opener, type Socket, type SocketClass } from "./sockets.js";

const SETTLE_MS = 6_000; // After this time a controller has dropped what a lost connection sent: nothing is stored any more.
const SILENCE_MS = 12_000; // A connection that answers no item for this long is given up: a WebSocket in a page cannot ping.
const KEPT_MAX = 1_000; // Answered items that are kept, to be sent again if the store loses them; and so many characters:
const KEPT_CHARS_MAX = 1_048_576;
const FRAME_CHARS_MAX = 262_144; // A controller takes 1 MiB, and a character is 4 bytes at most.
const FRAME_ITEMS_MAX = 64;
/** Codes of an item that is refused because too much was sent before it. */
const SLOWER: ReadonlySet<string> = new Set(["TOO_MANY_PENDING", "QUOTA"]);

/** One item: text, an interrupt, or a whole new configuration. */
export interface ItemOptions {
  readonly kind?: NonNullable<PushText["kind"]>;
  /** A sentence ends here: a good place to move the live. */
  readonly boundary?: boolean;
  /** The whole configuration, of kind `config`. */
  readonly config?: Json;
}

/** An item that is on its way. */
export interface Sent {
  /** Done once the item is stored. */
  readonly stored: Promise<Pushed>;
}

interface Item extends Sent {
  n: number;
  readonly fields: Readonly<ItemOptions & { text: string }>;
  readonly chars: number;
  readonly done: (pushed: Pushed) => void;
  readonly fail: (error: Error) => void;
}

interface Answer {
  readonly n?: number;
  readonly seq?: number;
  readonly duplicate?: boolean;
  readonly dropped?: number;
  readonly problem?: Json | null;
}

/**
 * Items for one live. `push` waits until the item is stored; `send` waits only while too many are in flight, and `flush`
 * for all. An item that is refused for good (the live has ended, the text is too large) ends the stream: later items must
 * not overtake it. A full queue is waited for, up to the client's deadline. `close` at the end, also after an error.
 */
export class Stream {
  /** Items that were stored, that the store has lost, and that could not be sent again. */
  lost = 0;
  #producer: Producer;
  #known = false; // Whether the store has an item of this stream.
  #unsure = false; // Whether items that were sent on a lost connection may yet be stored.
  #oneByOne = false;
  #owed: Item[] = [];
  #kept: Item[] = [];
  #keptChars = 0;
  #unsent: Item[] = [];
  #socket: Socket | null = null;
  #trouble = "";
  #failed: DhschedError | null = null;
  #waiting: (() => void)[] = [];
  #stop = new AbortController();
  #joined = new Sentences();
  #turn: Promise<void> = Promise.resolve(); // Done when the last call of `send` has its number.
  #well = 0; // When an item was last answered, or the first of those without an answer was sent.

  constructor(
    readonly liveId: string,
    private readonly replicas: Replicas,
    private readonly producers: Producers,
    private readonly inFlightMax: number,
    private readonly webSocket: SocketClass | undefined,
  ) {
    this.#producer = producers.take(liveId);
    this.#keep().catch((error: unknown) => this.#fail(asOurs(error)));
  }

  /** Store one item, and wait until it is stored. */
  async push(text: string, options: ItemOptions = {}): Promise<Pushed> {
    return (await this.send(text, options)).stored;
  }

  /** Send one item. Wait only while too many are in flight. Items are stored in the order of these calls. */
  async send(text: string, options: ItemOptions = {}): Promise<Sent> {
    return (await Promise.all([this.#sendRest(), this.#send(text, options)]))[1];
  }

  /** Send a token of a language model: tokens are joined here, and each whole sentence is an item, with a boundary. */
  async token(token: string): Promise<void> {
    for (const sentence of this.#joined.add(token)) await this.#send(sentence, { boundary: true });
  }

  /** Wait until everything sent is stored. */
  async flush(): Promise<void> {
    await this.#sendRest();
    await this.#turn;
    await this.#until(() => this.#owed.length === 0);
    if (this.#failed) throw this.#failed;
  }

  /** Wait until everything sent is stored, then close the connection. */
  async close(): Promise<void> {
    try {
      await this.flush();
    } finally {
      this.abandon();
    }
  }

  /** Close the connection without waiting. What is not stored by then may be stored, or not. */
  abandon(): void {
    this.#stop.abort();
    if (this.#failed === null && this.#owed.length === 0 && !this.#oneByOne) {
      this.producers.leave(this.liveId, this.#producer);
    }
    this.#fail(new Unreachable(`the stream to live ${this.liveId} was closed`));
  }

  async #sendRest(): Promise<void> {
    const rest = this.#joined.rest();
    if (rest) await this.#send(rest, { boundary: true });
  }

  #send(text: string, options: ItemOptions): Promise<Sent> {
    const sent = this.#turn.then(() => this.#sendNext(text, options));
    this.#turn = sent.then(() => {}, () => {});
    return sent;
  }

  async #sendNext(text: string, options: ItemOptions): Promise<Sent> {
    await this.#until(() => this.#owed.length < this.inFlightMax);
    if (this.#failed) throw this.#failed;
    const fields = { text, ...options };
    const chars = JSON.stringify(fields).length + 24;
    if (chars > FRAME_CHARS_MAX) {
      throw new DhschedError(`an item has ${chars} characters; send at most ${FRAME_CHARS_MAX} in one`);
    }
    this.#producer.n += 1;
    let done!: Item["done"];
    let fail!: Item["fail"];
    const stored = new Promise<Pushed>((resolve, reject) => [done, fail] = [resolve, reject]);
    stored.catch(() => {}); // The caller may not look at it: `flush` tells of the error too.
    const item: Item = { n: this.#producer.n, fields, chars, stored, done, fail };
    if (this.#owed.push(item) === 1) this.#well = performance.now();
    if (this.#oneByOne) this.#notify();
    else if (this.#unsent.push(item) === 1) queueMicrotask(() => this.#transmit());
    return { stored };
  }

  /** Send now, if there is a connection; the next connection repeats what is lost. */
  #transmit(): void {
    const items = this.#unsent;
    this.#unsent = [];
    if (this.#socket === null) return;
    try {
      for (const frame of framesOf(items)) this.#socket.send(frame);
    } catch {
      // The connection is lost, which its own events tell.
    }
  }

  // -- waiting

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.#failed) throw this.#failed;
      await new Promise<void>((done) => this.#waiting.push(done));
    }
  }

  #notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each();
  }

  #fail(error: DhschedError): void {
    this.#failed ??= error;
    for (const item of this.#owed) item.fail(this.#failed);
    this.#notify();
  }

  // -- the connection

  /** Keep a connection, and replace it when it is lost; fail after the deadline without one. */
  async #keep(): Promise<void> {
    for (let tries = 0; this.#failed === null && !this.#stop.signal.aborted; tries += 1) {
      if (this.#oneByOne) {
        if (this.#unsure) await this.#pause(SETTLE_MS);
        return this.#storeOneByOne();
      }
      const url = this.replicas.url;
      this.#trouble = "the connection was closed";
      try {
        const headers = await this.replicas.access(url);
        const make = opener(this.webSocket, headers);
        if (make === null) {
          this.#oneByOne = true;
          continue;
        }
        const where = `${url}/v1/lives/${encodeURIComponent(this.liveId)}/stream?producer=${this.#producer.name}`;
        if (await this.#serve(await open(make, where, headers, this.replicas.fetch))) tries = 0;
      } catch (error) {
        if (!this.#mayTryAgain(error, url, tries)) return this.#fail(error as DhschedError);
        this.#trouble = wordsOf(error);
      }
      this.replicas.leave(url);
      const pauseMs = this.replicas.backoffMs(tries);
      const silentMs = performance.now() + pauseMs - this.#well;
      if (silentMs > this.replicas.deadlineMs && this.#owed.length > 0) {
        const waited = `nothing was stored for ${Math.round(silentMs / 1000)} s`;
        return this.#fail(new Unreachable(`stream to live ${this.liveId}: ${waited} (${this.#trouble})`));
      }
      await this.#pause(pauseMs);
    }
  }

  #mayTryAgain(error: unknown, url: string, tries: number): boolean {
    if (!(error instanceof Refused) && !(error instanceof NotMinted)) return true;
    if (error.status === 401 && tries === 0 && this.replicas.forget(url)) return true;
    return AGAIN.has(error.code) || error.status >= 500 || error.status === 429;
  }

  /** Send all items without an answer again, then handle the answers until the end. Return whether there were any. */
  async #serve(socket: Socket): Promise<boolean> {
    let [answered, refused] = [false, false];
    let heard = performance.now();
    await new Promise<void>((done) => {
      const watch = setInterval(() => {
        if (this.#owed.length === 0) heard = performance.now();
        if (performance.now() - heard < SILENCE_MS) return;
        this.#trouble = `no item was answered for ${SILENCE_MS / 1000} s`;
        over();
      }, SILENCE_MS / 12);
      const over = (): void => {
        clearInterval(watch);
        this.#stop.signal.removeEventListener("abort", over);
        if (this.#socket === socket) this.#socket = null;
        socket.close();
        done();
      };
      this.#stop.signal.addEventListener("abort", over);
      socket.addEventListener("close", over);
      socket.addEventListener("error", over);
      socket.addEventListener("message", ({ data }) => {
        if (this.#socket !== socket) return;
        heard = performance.now();
        for (const answer of answersOf(data)) {
          refused = !this.#hear(answer);
          if (refused) return over();
          answered = true;
        }
      });
      this.#socket = socket;
      this.#unsent = [...this.#owed];
      this.#transmit();
      if (socket.readyState !== 1 || this.#stop.signal.aborted) over();
    });
    this.#unsure ||= !refused && this.#owed.length > 0;
    return answered;
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, this.#stop.signal).catch(() => {});
  }

  // -- answers

  /** Handle one answer. Return false if the stream must reconnect. */
  #hear(answer: Answer): boolean {
    const problem = answer.problem ?? null;
    const code = String(problem?.["code"] ?? "");
    if (problem !== null && this.#givesUpItsName(code)) return false;
    if (problem !== null && (AGAIN.has(code) || SLOWER.has(code) || code === "GAP")) {
      // The item is not stored but may be later: after a reconnect, this and all later items are sent again.
      if (code !== "GAP" || !this.#takesBack(problem["last"])) this.#trouble = String(problem["detail"]);
      return false;
    }
    const n = answer.n ?? 0;
    const refused = problem === null ? null : new Refused(Number(problem["status"] ?? 400), problem);
    for (let item = this.#owed[0]; item !== undefined && item.n <= n; item = this.#owed[0]) {
      this.#owed.shift();
      this.#keepItem(item);
      if (refused !== null && item.n === n) item.fail(refused);
      else item.done(this.#pushed(item.n === n ? answer : {}));
    }
    this.#known ||= refused === null;
    this.#well = performance.now();
    // After a refusal the next number would leave a gap, so this producer cannot continue.
    if (refused !== null) this.#fail(refused);
    else this.#notify();
    return refused === null;
  }

  #pushed(answer: Answer): Pushed {
    const seq = answer.seq || null;
    const duplicate = seq === null || answer.duplicate === true;
    return { live_id: this.liveId, request_id: "", seq, duplicate, dropped: answer.dropped ?? 0 };
  }

  /** Return whether the store refuses this name and no item of this stream is or can be stored under it. */
  #givesUpItsName(code: string): boolean {
    if (this.#known || (code === "GAP" && this.#unsure)) return false;
    if (code === "TOO_MANY_PRODUCERS") this.#oneByOne = true;
    else if (code === "GAP") this.#takeNewName(); // The store has forgotten this name, which is of an earlier stream.
    else return false;
    return true;
  }

  #keepItem(item: Item): void {
    this.#kept.push(item);
    this.#keptChars += item.chars;
    while (this.#kept.length > KEPT_MAX || this.#keptChars > KEPT_CHARS_MAX) {
      this.#keptChars -= this.#kept.shift()?.chars ?? 0;
    }
  }

  /**
   * Return whether the store has lost items that it had answered: its last one is `last`. They are sent again, as far as
   * they are kept; where some are not, all items are numbered anew, under a new name.
   */
  #takesBack(last: unknown): boolean {
    const first = this.#owed[0]?.n ?? this.#producer.n + 1;
    if (typeof last !== "number" || !this.#known || last + 1 >= first) return false;
    const back = this.#kept.filter((item) => item.n > last);
    this.#kept = this.#kept.filter((item) => item.n <= last);
    this.#keptChars = this.#kept.reduce((chars, item) => chars + item.chars, 0);
    this.#owed = [...back, ...this.#owed];
    const missing = (this.#owed[0]?.n ?? first) - last - 1;
    if (missing > 0) {
      this.lost += missing;
      this.#kept = [];
      this.#keptChars = 0;
      this.#takeNewName();
    }
    return true;
  }

  /** Number the items that are not stored anew, under a new name. */
  #takeNewName(): void {
    this.#producer = newProducer();
    for (const item of this.#owed) {
      this.#producer.n += 1;
      item.n = this.#producer.n;
    }
  }

  // -- one by one

  /** Store the items in order, each before the next is sent. The request id makes a repetition safe. */
  async #storeOneByOne(): Promise<void> {
    const { signal } = this.#stop;
    signal.addEventListener("abort", () => this.#notify(), { once: true });
    while (this.#failed === null && !signal.aborted) {
      const item = this.#owed[0];
      if (item === undefined) {
        await new Promise<void>((done) => this.#waiting.push(done));
        continue;
      }
      const { seq, dropped } = await this.#storeOne(item);
      this.#hear({ n: item.n, seq: seq ?? 0, dropped: dropped ?? 0 });
    }
  }

  async #storeOne(item: Item): Promise<Pushed> {
    const giveUp = performance.now() + this.replicas.deadlineMs;
    const body: PushText = { ...item.fields, request_id: `${this.#producer.name}-${item.n}` };
    for (;;) {
      try {
        const { signal } = this.#stop;
        return await this.replicas.call<Pushed>("POST", ["lives", this.liveId, "text"], { body, signal });
      } catch (error) {
        const pauseMs = error instanceof Refused ? (error.retryAfterMs ?? 1_000) : 0;
        const slower = error instanceof Refused && SLOWER.has(error.code);
        if (!slower || performance.now() + pauseMs > giveUp) throw error;
        await this.#pause(pauseMs);
      }
    }
  }
}

/** Return a frame's answers. Anything else is of no server of ours, and answers nothing. */
function answersOf(data: unknown): Answer[] {
  try {
    const found: unknown = JSON.parse(String(data));
    return Array.isArray(found) ? found.filter(isJson) : [];
  } catch {
    return [];
  }
}

/** Yield items as JSON arrays within a controller's limits. A configuration may be large, and travels alone. */
export function* framesOf(items: Iterable<Pick<Item, "n" | "fields" | "chars">>): Generator<string, void> {
  let frame: string[] = [];
  let chars = 0;
  for (const item of items) {
    const alone = item.fields.config !== undefined;
    if (frame.length > 0 && (alone || chars + item.chars > FRAME_CHARS_MAX || frame.length === FRAME_ITEMS_MAX)) {
      yield `[${frame.join(",")}]`;
      [frame, chars] = [[], 0];
    }
    frame.push(JSON.stringify({ n: item.n, ...item.fields }));
    chars += alone ? FRAME_CHARS_MAX : item.chars;
  }
  if (frame.length > 0) yield `[${frame.join(",")}]`;
}

function asOurs(error: unknown): DhschedError {
  return error instanceof DhschedError ? error : new DhschedError(wordsOf(error), { cause: error });
}
