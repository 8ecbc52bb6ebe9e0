// The client: create and end lives, push their input, follow their events.

import { newId, Replicas } from "./calls.js";
import { Refused, Unreachable } from "./errors.js";
import { follow } from "./following.js";
import type * as m from "./models.js";
import { Producers } from "./producers.js";
import type { SocketClass } from "./sockets.js";
import { Stream } from "./stream.js";
import { bearer, type Fetch } from "./tokens.js";

const PAGE_MAX = 1_000; // Lives of one page of a list.
const DRAWS_MAX = 3; // Further ids that are drawn for a live in vain; with the last one the client waits, or is refused.

export interface ClientOptions {
  /** Addresses of the Infer-Controllers, to send input to them directly; without it, Dispatch passes input on. */
  readonly infer?: string | readonly string[];
  /** An API key, whose tokens go along with every call and are renewed in time. Keep it out of pages. */
  readonly key?: string;
  /** A token instead of a key. */
  readonly token?: string;
  /** Whose lives are meant; for an admin's key. */
  readonly tenant?: string;
  /** For one call, all tries included. By default 30,000. */
  readonly deadlineMs?: number;
  /** The class of the package `ws`, for streams in node 20 or with a key there; node 22 and browsers have their own. */
  readonly webSocket?: SocketClass;
  readonly fetch?: Fetch;
}

export type CreateOptions = Omit<m.CreateLive, "digital_id"> & {
  /** Wait this long for a free slot instead of being refused with FULL. */
  readonly wait_s?: number;
  readonly signal?: AbortSignal;
};

/**
 * A client of one deployment. `dispatch` are addresses, one or many: if one does not answer, the next is asked.
 *
 * Every call that changes something carries an id, so the client may repeat the call, here or at another replica, until
 * its deadline: the server does it once. A refusal is thrown as `Refused`, no answer as `Unreachable`.
 */
export class Client {
  readonly #dispatch: Replicas;
  readonly #infer: Replicas;
  readonly #producers = new Producers();
  readonly #webSocket: SocketClass | undefined;

  constructor(dispatch: string | readonly string[], options: ClientOptions = {}) {
    const headers = {
      ...(options.token ? bearer(options.token) : {}),
      ...(options.tenant ? { "X-Tenant": options.tenant } : {}),
    };
    const key = options.token ? "" : (options.key ?? "");
    const fetch: Fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
    const deadlineMs = options.deadlineMs ?? 30_000;
    const replicas = (role: string, urls: string | readonly string[]): Replicas =>
      new Replicas(role, urls, key, headers, deadlineMs, fetch);
    this.#dispatch = replicas("dispatch", dispatch);
    this.#infer = options.infer === undefined ? this.#dispatch : replicas("infer", options.infer);
    this.#webSocket = options.webSocket;
  }

  // -- lives

  /**
   * Place a new live. Without `live_id` the client makes one, so that a repeated try makes no second live. Where the cell
   * of that id has no free slot and another cell has, the client draws another id, up to three times, before it waits.
   */
  async create(digitalId: string, options: CreateOptions = {}): Promise<m.Placed> {
    const { wait_s = 0, signal, ...given } = options;
    const body = { live_id: newLiveId(), ...given, digital_id: digitalId };
    for (let drawsLeft = given.live_id === undefined ? DRAWS_MAX : 0; ; ) {
      const redraw = drawsLeft > 0 && wait_s > 0 ? "1" : undefined;
      const query = { wait_s: wait_s > 0 ? wait_s : undefined, redraw };
      const isFinal = drawsLeft > 0 ? isElsewhere : undefined;
      try {
        return await this.#dispatch.call("POST", ["lives"], { body, query, waitMs: wait_s * 1000, signal, isFinal });
      } catch (error) {
        if (!(error instanceof Refused) || drawsLeft === 0 || !isElsewhere(error)) throw error;
        if (error.unknown && wait_s === 0) throw error;
        // After a lost answer there may be a live with this id: the caller waits for that one.
        drawsLeft = error.unknown ? 0 : drawsLeft - 1;
        if (!error.unknown) body.live_id = newLiveId();
      }
    }
  }

  get(liveId: string): Promise<m.Live> {
    return this.#dispatch.call("GET", ["lives", liveId]);
  }

  /** Yield lives by name, page after page. Throw at the end if a cell could not be asked: its lives are missing, not gone. */
  async *list(filters: m.LiveFilters = {}): AsyncGenerator<m.LiveSummary, void> {
    const leftOut = new Set<string>();
    for (let after: string | null | undefined; after !== null; ) {
      const query = { ...filters, after, limit: PAGE_MAX };
      type Page = { lives: m.LiveSummary[]; next: string | null; cells_left_out?: string[] };
      const page: Page = await this.#dispatch.call("GET", ["lives"], { query });
      yield* page.lives;
      for (const cell of page.cells_left_out ?? []) leftOut.add(cell);
      after = page.next;
    }
    if (leftOut.size > 0) {
      const names = [...leftOut].sort().join(", ");
      throw new Unreachable(`cell ${names} cannot be asked now: the lives there are not in this list`, {}, null);
    }
  }

  /** Replace a live's metadata, its labels, or both; what is left out stays. */
  change(liveId: string, changed: m.ChangeLive): Promise<m.Live> {
    return this.#dispatch.call("PATCH", ["lives", liveId], { body: changed });
  }

  /** Reassign a live to another Worker: to `to` and no other, or without it wherever there is a free slot. */
  async reassign(liveId: string, options: { to?: string; avoid?: string[] } = {}): Promise<m.Placed> {
    const { epoch } = await this.get(liveId);
    const { to, avoid } = options;
    const body: m.Reassign = { expected_epoch: epoch, ...(to && { target: to }), ...(avoid && { avoid }) };
    const headers = { "Idempotency-Key": newId() };
    return this.#dispatch.call("POST", ["lives", liveId, "reassign"], { body, headers });
  }

  /** End a live now, or once its pending input is consumed. */
  end(liveId: string, options: { after_pending?: boolean } = {}): Promise<m.Ended> {
    return this.#dispatch.call("POST", ["lives", liveId, "end"], { body: options });
  }

  history(liveId: string): Promise<m.History> {
    return this.#dispatch.call("GET", ["lives", liveId, "history"]);
  }

  /** Mint a token with which one person watches this live in a room and, with the grants `say` and `interrupt`, types. */
  viewerToken(liveId: string, asked: m.MintViewerToken = {}): Promise<m.ViewerToken> {
    return this.#dispatch.call("POST", ["lives", liveId, "viewer-tokens"], { body: asked });
  }

  // -- input

  /** Store one item of text. For many items, a `stream` is faster and keeps their order. */
  push(liveId: string, text: string, options: { boundary?: boolean; request_id?: string } = {}): Promise<m.Pushed> {
    return this.#push(liveId, { text, ...options });
  }

  /** Drop the pending items; the runtime stops and continues with `text`, if given. */
  interrupt(liveId: string, text = "", options: { request_id?: string } = {}): Promise<m.Pushed> {
    return this.#push(liveId, { text, kind: "interrupt", ...options });
  }

  /** Replace the runtime's whole configuration, in order with the text. */
  configure(liveId: string, config: m.Json, options: { request_id?: string } = {}): Promise<m.Pushed> {
    return this.#push(liveId, { kind: "config", config, ...options });
  }

  #push(liveId: string, item: m.PushText): Promise<m.Pushed> {
    return this.#infer.call("POST", ["lives", liveId, "text"], { body: { request_id: newId(), ...item } });
  }

  /** Return a connection for many items: in order, each exactly once, also over lost connections. */
  stream(liveId: string, options: { inFlightMax?: number } = {}): Stream {
    return new Stream(liveId, this.#infer, this.#producers, options.inFlightMax ?? 256, this.#webSocket);
  }

  // -- events

  /** Yield a live's events until it ends. A connection made anew begins with the live's current state. */
  async *events(liveId: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<m.LiveEvent, void> {
    for await (const { name, data } of follow(this.#infer, ["lives", liveId, "events"], options.signal)) {
      yield { name, data };
      if (name === "ended") return;
    }
  }
}

/** Return the address of a live's page in a room, for `<dhsched-live src>` or to send to somebody. */
export function viewerLink(room: string, token: m.ViewerToken): string {
  return `${room.replace(/\/+$/, "")}/live/${encodeURIComponent(token.live_id)}#token=${token.token}`;
}

const newLiveId = (): string => `lv-${newId(8)}`;

/** Return whether the refusal says that another cell has free slots, for a live with another id. */
const isElsewhere = (refused: Refused): boolean => refused.problem["elsewhere"] === true;
