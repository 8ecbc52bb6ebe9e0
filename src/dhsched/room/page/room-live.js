// One live at its room: its address, its viewer token, and the calls that a viewer makes.
// These files are modules that a browser loads as they are; the package @dhsched/client has them too. JSDoc has their types.

const SAY_TRIES = 3;
const SAY_MS = 8000; // A call without an answer for this long is tried again, with the same id.
const SAY_PAUSE_MS = 300;
const STATE_MS = 5000;

/**
 * The state of a live as the room tells its viewers. `owner` is null while Dispatch does not answer; times are wall-clock.
 * @typedef {object} LiveState
 * @property {string} live_id
 * @property {number} now_ms
 * @property {Owner | null} owner
 * @property {number} on_air The generation whose pictures viewers see; 0 before the first.
 * @property {number} viewers
 * @property {boolean} may_say
 * @property {boolean} may_interrupt
 * @property {string} identity
 * @property {number | null} expires_at_ms When this viewer's token ends.
 * @property {{ identity: string, kind: string, seq: number, at_ms: number }[]} said
 * @property {Shown[]} timeline
 * @property {number | null} pid
 */
/**
 * @typedef {object} Owner
 * @property {string} live_id
 * @property {string} digital_id
 * @property {string} state
 * @property {string} worker
 * @property {number} epoch
 * @property {boolean} claimed
 * @property {string} cause
 * @property {number} pending
 * @property {number} acked
 */
/**
 * One generation on air, from `began_ms` to `last_ms`; before it there was no picture for `gap_ms`.
 * @typedef {{ epoch: number, worker: string, cause: string, began_ms: number, last_ms: number, gap_ms: number }} Shown
 */
/**
 * What became of an item: its number in the live's input, or that it was stored before.
 * @typedef {{ seq?: number | null, duplicate?: boolean, dropped?: number }} Stored
 */
/**
 * What a viewer sends: text, or an interrupt with text to go on with. The same `request_id` again is the same item.
 * @typedef {{ text?: string, kind?: "text" | "interrupt", boundary?: boolean, request_id?: string }} Said
 */

// The room refused a call. `code` is stable, the message is for people.
export class RoomRefused extends Error {
  /**
   * @param {number} status
   * @param {{ code?: string, detail?: string }} problem
   */
  constructor(status, problem) {
    super(problem.detail || `the room answered ${status}`);
    this.name = "RoomRefused";
    this.status = status;
    this.code = problem.code || String(status);
  }
}

/**
 * Return a response's error document as an error.
 * @param {Response} response
 */
export async function refusalOf(response) {
  return new RoomRefused(response.status, await response.json().catch(() => ({})));
}

export class RoomLive {
  /**
   * @param {string} src The address of the live's page, `https://room.example/live/NAME`, maybe with `#token=...`.
   * @param {string} [token] A viewer token, instead of that in the address.
   */
  constructor(src, token = "") {
    const url = new URL(src, globalThis.location?.href);
    const found = /^(.*)\/live\/([^/]+)$/.exec(url.pathname);
    if (!found) throw new TypeError(`src is ${url.origin}${url.pathname}; it must look like https://room.example/live/NAME`);
    this.name = decodeURIComponent(found[2] ?? "");
    this.url = `${url.origin}${found[1]}/v1/lives/${encodeURIComponent(this.name)}`;
    this.token = token || new URLSearchParams(url.hash.slice(1)).get("token") || "";
  }

  /**
   * Return the headers of a call to the room.
   * @param {Record<string, string>} [more]
   * @returns {Record<string, string>}
   */
  headers(more = {}) {
    return this.token ? { ...more, Authorization: `Bearer ${this.token}` } : more;
  }

  /** @returns {Promise<LiveState>} */
  async state() {
    const response = await fetch(`${this.url}/state`, { headers: this.headers(), signal: AbortSignal.timeout(STATE_MS) });
    if (!response.ok) throw await refusalOf(response);
    return response.json();
  }

  /**
   * Send an item. It has one id in all tries: the live is never told twice.
   * @param {Said} item
   * @returns {Promise<Stored>}
   */
  async say(item) {
    const body = JSON.stringify({ request_id: newId(), ...item });
    for (let attempt = 1; ; attempt += 1) {
      try {
        const response = await fetch(`${this.url}/text`, {
          method: "POST",
          headers: this.headers({ "Content-Type": "application/json" }),
          body,
          signal: AbortSignal.timeout(SAY_MS),
        });
        if (response.ok) return await response.json();
        throw await refusalOf(response);
      } catch (error) {
        if (attempt === SAY_TRIES || (error instanceof RoomRefused && error.status < 500)) throw error;
      }
      await new Promise((done) => setTimeout(done, SAY_PAUSE_MS * attempt));
    }
  }
}

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
