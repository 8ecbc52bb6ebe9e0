// <dhsched-live src="https://room.example/live/NAME" token="..."></dhsched-live>: a live in a page, with picture, sound and
// captions. It stays connected while Workers change, and connects again when the room was away.
//
//   attributes   src      the live's address at the room, as `dhsched live watch-link` prints it; #token=... is taken
//                token    a viewer token. A new one renews the connection; set the property to keep it out of the page's text
//                muted    begins without sound, and does not try to begin with it
//                fill     fills its own height, with captions over the picture
//   methods      say(text), interrupt(text)     what became of the item; throws RoomRefused
//   properties   connection, state, live, video, peer, connects
//   events       connection   connecting, connected, disconnected, failed (it tries again), ended
//                takeover     another generation is on air; one event for each
//                caption, air (pictures come, or none came for 400 ms), state (each second)

import { Captions } from "./captions.js";
import { STYLE } from "./dhsched-live-style.js";
import { RoomLive, RoomRefused } from "./room-live.js";
import { span_ } from "./span.js";
import { Whep } from "./whep.js";

export { RoomRefused };
/** @typedef {import("./room-live.js").LiveState} LiveState */
/** @typedef {import("./room-live.js").Said} Said */
/** @typedef {import("./room-live.js").Stored} Stored */
/** @typedef {import("./captions.js").Caption} Caption */
/** @typedef {import("./whep.js").ConnectionState} ConnectionState */
/** @typedef {{ epoch: number, previous: number, worker: string, cause: string, gap_ms: number }} TakeOver */

const POLL_MS = 1000;
const NO_PICTURE_MS = 400; // Without a new picture for this long, the badge says so.
const STILL_MS = 900; // Without one for this long, the veil says what is waited for.
const WATCH_MS = 100;

// A server that renders pages imports this module too; there are no elements there.
const Base = /** @type {typeof HTMLElement} */ (globalThis.HTMLElement ?? class {});

export class DhschedLive extends Base {
  static observedAttributes = ["src", "token"];
  /** @type {RoomLive | null} */
  #room = null;
  /** @type {Whep | null} */
  #whep = null;
  /** @type {Captions | null} */
  #captions = null;
  #token = "";
  #refreshing = false;
  #lastFrame = 0;
  #lastBegan = 0; // When the generation on air began, by the room's clock.
  #onAir = 0;
  #polling = 0; // Counts the loops that ask for the state: only the last one goes on.
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #watching = undefined;
  /** @type {ConnectionState} */
  #connection = "new";
  /** @type {LiveState | null} */
  #state = null;
  #parts = partsOf();
  #hide = () => this.#close();
  /** @param {PageTransitionEvent} event */
  #show = (event) => event.persisted && this.#open();

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet(); // A page's policy may forbid inline styles.
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    root.append(this.#parts.stage);
    this.#parts.sound.addEventListener("click", () => this.#setSound(this.video.muted));
    const onFrame = () => {
      this.#lastFrame = performance.now();
      if (this.#connection !== "ended") this.#parts.veil.hidden = true; // A last picture may come after the end.
      this.video.requestVideoFrameCallback(onFrame);
    };
    this.video.requestVideoFrameCallback(onFrame);
  }

  // -- what a page uses

  get src() {
    return this.getAttribute("src") ?? "";
  }

  set src(src) {
    this.setAttribute("src", src);
  }

  get token() {
    return this.#token || (this.getAttribute("token") ?? "");
  }

  set token(token) {
    this.#token = token;
    this.#refreshSoon();
  }

  /** The name of the live. */
  get live() {
    return this.#room?.name ?? "";
  }

  get connection() {
    return this.#connection;
  }

  /** What the room said last. */
  get state() {
    return this.#state;
  }

  get video() {
    return this.#parts.video;
  }

  /** The connection to the room, for its statistics. */
  get peer() {
    return this.#whep?.pc ?? null;
  }

  /** Connections that came up: more than one means that the room was lost in between. */
  get connects() {
    return this.#whep?.connects ?? 0;
  }

  /**
   * Tell the live something; needs the grant `say`.
   * @param {string} text
   * @param {Omit<Said, "text" | "kind">} [options]
   * @returns {Promise<Stored>}
   */
  async say(text, options = {}) {
    return this.#here().say({ boundary: true, ...options, text });
  }

  /**
   * Stop what it says, and drop what it was told and has not said; needs the grant `interrupt`, and `say` for a text.
   * @param {string} [text] What it goes on with.
   * @param {Omit<Said, "text" | "kind">} [options]
   * @returns {Promise<Stored>}
   */
  async interrupt(text = "", options = {}) {
    return this.#here().say({ ...options, kind: "interrupt", ...(text && { text }) });
  }

  // -- the element in its page

  connectedCallback() {
    if (this.hasAttribute("muted")) this.#setSound(false);
    addEventListener("pagehide", this.#hide);
    addEventListener("pageshow", this.#show);
    this.#refreshSoon();
  }

  disconnectedCallback() {
    removeEventListener("pagehide", this.#hide);
    removeEventListener("pageshow", this.#show);
    this.#close();
    this.#room = null;
  }

  attributeChangedCallback() {
    this.#refreshSoon();
  }

  // Attributes and properties are set one after the other: they are looked at once, behind the last.
  #refreshSoon() {
    if (this.#refreshing) return;
    this.#refreshing = true;
    queueMicrotask(() => {
      this.#refreshing = false;
      this.#refresh();
    });
  }

  #refresh() {
    if (!this.isConnected || !this.src) return;
    let room;
    try {
      room = new RoomLive(this.src, this.token);
    } catch (error) {
      return this.#onState("ended", error instanceof Error ? error.message : String(error));
    }
    const before = this.#room;
    if (before && before.url === room.url) {
      if (before.token === room.token) return;
      before.token = room.token;
      this.#whep?.renew();
      return;
    }
    this.#close();
    this.#forget();
    this.#room = room;
    this.#captions = new Captions(room, this.#parts.caption, (caption) => this.#tell("caption", caption));
    this.#whep = new Whep(room, {
      onStream: (stream) => {
        this.video.srcObject = stream;
        this.#play();
      },
      onState: (state, reason) => this.#onState(state, reason),
    });
    this.#open();
  }

  #open() {
    if (!this.#room) return;
    this.#whep?.start();
    this.#polling += 1;
    this.#poll(this.#polling, this.#room);
    clearInterval(this.#watching);
    this.#watching = setInterval(() => this.#watchPicture(), WATCH_MS);
  }

  #close() {
    this.#polling += 1;
    clearInterval(this.#watching);
    this.#captions?.stop();
    this.#whep?.close();
  }

  // Another live: nothing of the one before is shown.
  #forget() {
    this.#captions?.clear();
    this.#state = null;
    this.#lastFrame = this.#lastBegan = this.#onAir = 0;
    this.video.srcObject = null;
    this.#badge("none", "");
  }

  #here() {
    if (!this.#room) throw new TypeError("this element shows no live: give it a src, and put it into a page");
    return this.#room;
  }

  /**
   * @param {string} name
   * @param {unknown} detail
   */
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  // -- picture and sound

  /**
   * @param {ConnectionState} state
   * @param {string} [reason]
   */
  #onState(state, reason = "") {
    if (state === this.#connection && !reason) return; // The browser says again that it is connecting.
    this.#connection = state;
    this.#parts.stage.toggleAttribute("data-over", state === "ended"); // A new token begins again.
    if (state === "connected") this.#captions?.follow(this.#whep?.session ?? null);
    if (["failed", "ended"].includes(state)) this.#captions?.stop();
    if (state === "ended") {
      this.#veil(reason);
      this.#badge("none", "");
      this.#captions?.clear();
    }
    this.#tell("connection", { state, reason });
  }

  async #play() {
    try {
      await this.video.play();
    } catch {
      this.#setSound(false); // A browser lets a page start by itself only without sound.
    }
  }

  /** @param {boolean} on */
  #setSound(on) {
    this.video.muted = !on;
    this.#parts.sound.setAttribute("aria-pressed", String(on));
    this.#parts.soundLabel.textContent = on ? "Sound is on" : "Turn sound on";
    this.video.play().catch(() => {});
  }

  /** @param {string} text */
  #veil(text) {
    this.#parts.veil.textContent = text;
    this.#parts.veil.hidden = false;
  }

  /**
   * @param {"on" | "off" | "none"} air
   * @param {string} text
   */
  #badge(air, text) {
    const { badge } = this.#parts;
    if (badge.dataset["air"] !== air) {
      badge.dataset["air"] = air;
      this.#tell("air", { air });
    }
    badge.textContent = text;
    badge.hidden = !text;
  }

  #watchPicture() {
    if (this.#connection === "ended") return;
    const still = performance.now() - this.#lastFrame;
    if (this.#lastFrame && !document.hidden) {
      // Hidden pages draw nothing.
      if (still < NO_PICTURE_MS) this.#badge("on", "on air");
      else this.#badge("off", `no picture for ${span_(Math.floor(still / 100) * 100)}`);
    }
    if (!this.#lastFrame || still >= STILL_MS) this.#veil(this.#waitsFor());
  }

  #waitsFor() {
    const owner = this.#state?.owner;
    if (this.#connection !== "connected") return "Connecting to the room";
    if (!owner) return "Waiting for a picture";
    if (!owner.claimed) return `Epoch ${owner.epoch} is starting on ${owner.worker}`;
    return this.#lastFrame
      ? "The picture stands still; the next Worker takes over by itself"
      : "Waiting for the first picture";
  }

  // -- who runs it

  /**
   * @param {number} turn
   * @param {RoomLive} room
   */
  async #poll(turn, room) {
    while (turn === this.#polling) {
      try {
        const state = await room.state();
        if (turn === this.#polling) this.#took(state);
      } catch (error) {
        // Without an answer the room is away; the connection says so.
        const refused = error instanceof RoomRefused && [401, 403].includes(error.status);
        if (turn === this.#polling && refused && this.#connection !== "ended") this.#whep?.over(error.message);
      }
      await new Promise((done) => setTimeout(done, POLL_MS));
    }
  }

  /** @param {LiveState} state */
  #took(state) {
    this.#state = state;
    if (state.owner?.state === "ended" && this.#connection !== "ended") {
      this.#whep?.over(`Live ${state.live_id} has ended`);
    }
    for (const shown of state.timeline) {
      if (shown.began_ms <= this.#lastBegan) continue;
      const { epoch, worker, cause, gap_ms } = shown;
      const previous = this.#onAir;
      this.#lastBegan = shown.began_ms;
      this.#onAir = epoch;
      if (previous && previous !== epoch) this.#tell("takeover", { epoch, previous, worker, cause, gap_ms });
    }
    this.#tell("state", state);
  }
}

// -- its parts

const SVG = "http://www.w3.org/2000/svg";

function partsOf() {
  const video = make("video", { id: "video", part: "video", autoplay: "", playsinline: "" });
  video.muted = true;
  const veil = make("p", { id: "veil", class: "veil", part: "veil", role: "status" }, "Connecting to the room");
  const badge = make("p", { id: "badge", class: "badge", part: "badge", "data-air": "none", hidden: "" });
  const soundLabel = make("span", { id: "sound-label" }, "Turn sound on");
  const sound = make(
    "button",
    { id: "sound", class: "sound", part: "sound", type: "button", "aria-pressed": "false" },
    icon(),
    soundLabel,
  );
  const frame = make("div", { class: "frame", part: "frame" }, video, veil, badge, sound);
  const live = { "aria-live": "polite", "aria-atomic": "false", hidden: "" };
  const caption = make("p", { id: "caption", class: "caption", part: "caption", ...live });
  const stage = make("div", { class: "stage" }, frame, caption);
  return { stage, video, veil, badge, sound, soundLabel, caption };
}

function icon() {
  const waves = "M16 8.5a5 5 0 0 1 0 7M18.5 6a8.5 8.5 0 0 1 0 12";
  const line = { fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round" };
  const made = drawn("svg", { viewBox: "0 0 24 24", width: "20", height: "20", "aria-hidden": "true" });
  made.append(
    drawn("path", { d: "M4 9v6h4l5 4V5L8 9z", fill: "currentColor" }),
    drawn("path", { class: "on", d: waves, ...line }),
    drawn("path", { class: "off", d: "m16.5 9.5 5 5m0-5-5 5", ...line }),
  );
  return made;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node | string)} children
 */
function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 */
function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

if (globalThis.customElements && !customElements.get("dhsched-live")) customElements.define("dhsched-live", DhschedLive);
