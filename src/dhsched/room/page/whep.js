// The connection to the room: one offer, one answer, and again after a while when it was lost.
// A change of Worker is not seen here at all: the connection belongs to the room.

import { refusalOf, RoomRefused } from "./room-live.js";

const BACKOFF_FIRST_MS = 500;
const BACKOFF_MAX_MS = 5000;
const ANSWER_MS = 10000;
const CONNECT_MS = 10000; // The room gives up an offer without packets after a few seconds, and cannot say so.
const DISCONNECTED_MS = 4000;
const FINAL = ["NOT_FOUND", "ENDED", "UNAUTHORIZED", "FORBIDDEN", "ORIGIN"]; // To try again does not help.

/** @typedef {"connecting" | "connected" | "disconnected" | "failed" | "ended" | "new" | "closed"} ConnectionState */

export class Whep {
  /**
   * @param {import("./room-live.js").RoomLive} room
   * @param {{ onStream: (stream: MediaStream) => void, onState: (state: ConnectionState, reason?: string) => void }} on
   */
  constructor(room, { onStream, onState }) {
    this.room = room;
    this.onStream = onStream;
    this.onState = onState;
    /** @type {RTCPeerConnection | null} */
    this.pc = null;
    this.connects = 0; // Connections that came up: more than one means that the room was lost in between.
    this.backoff = BACKOFF_FIRST_MS;
    /** @type {string | null} */
    this.session = null;
    /** @type {Partial<Record<"retry" | "waiting" | "connecting", ReturnType<typeof setTimeout>>>} */
    this.timers = {};
  }

  async start() {
    this.close();
    const pc = new RTCPeerConnection();
    this.pc = pc;
    const stream = new MediaStream();
    pc.addTransceiver("video", { direction: "recvonly" });
    pc.addTransceiver("audio", { direction: "recvonly" });
    pc.ontrack = (event) => {
      stream.addTrack(event.track);
      if (stream.getTracks().length === 2) this.onStream(stream);
    };
    pc.onconnectionstatechange = () => this.changed(pc);
    this.onState("connecting");
    try {
      const offer = await pc.createOffer();
      // At once: the room finds us by our packets, and needs no address of ours.
      const url = `${this.room.url}/whep`;
      const response = await fetch(url, {
        method: "POST",
        headers: this.room.headers({ "Content-Type": "application/sdp" }),
        body: offer.sdp ?? "",
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      if (!response.ok) throw await refusalOf(response);
      const session = new URL(response.headers.get("Location") ?? "", url).href;
      if (pc !== this.pc) return this.leave(session);
      this.session = session;
      // The browser begins to gather addresses with the local description, and by then must know the servers.
      pc.setConfiguration({ iceServers: iceServers(response.headers.get("Link")) });
      await pc.setLocalDescription(offer);
      await pc.setRemoteDescription({ type: "answer", sdp: await response.text() });
      if (pc !== this.pc) return;
      this.timers.connecting = setTimeout(() => this.lost(new Error("no packets reach the room")), CONNECT_MS);
    } catch (error) {
      if (pc === this.pc) this.lost(error);
    }
  }

  /** @param {RTCPeerConnection} pc */
  changed(pc) {
    if (pc !== this.pc) return;
    const state = pc.connectionState;
    if (state === "connected") {
      clearTimeout(this.timers.connecting);
      this.connects += 1;
      this.backoff = BACKOFF_FIRST_MS;
    }
    clearTimeout(this.timers.waiting);
    if (state === "failed") this.lost(new Error("the connection to the room was lost"));
    else if (state === "disconnected") {
      this.onState(state);
      this.timers.waiting = setTimeout(() => this.lost(new Error("the room does not answer")), DISCONNECTED_MS);
    } else this.onState(state);
  }

  /** @param {unknown} error */
  lost(error) {
    const reason = error instanceof Error ? error.message : String(error);
    if (error instanceof RoomRefused && FINAL.includes(error.code)) return this.over(reason);
    this.onState("failed", reason);
    this.close();
    this.timers.retry = setTimeout(() => this.start(), this.backoff);
    this.backoff = Math.min(this.backoff * 2, BACKOFF_MAX_MS);
  }

  // There is a new token: the connection lasts as long as that one. Without a connection, begin one.
  async renew() {
    const renewed = this.session && fetch(`${this.session}/token`, { method: "POST", headers: this.room.headers() });
    const response = await Promise.resolve(renewed).catch(() => null);
    if (!response || !response.ok) this.start();
  }

  /**
   * The live has ended, or the token has: nothing more comes, and trying again is of no use.
   * @param {string} reason
   */
  over(reason) {
    this.onState("ended", reason);
    this.close();
  }

  close() {
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    if (this.session) this.leave(this.session);
    this.session = null;
    if (this.pc) this.pc.close();
    this.pc = null;
  }

  /** @param {string} session */
  leave(session) {
    fetch(session, { method: "DELETE", headers: this.room.headers(), keepalive: true }).catch(() => {});
  }
}

/**
 * The room names STUN and TURN servers in Link headers: <turn:host>; rel="ice-server"; username="..."; credential="..."
 * @param {string | null} links
 * @returns {RTCIceServer[]}
 */
export function iceServers(links) {
  return (links || "")
    .split(/,\s*(?=<)/)
    .filter((link) => /;\s*rel="ice-server"/.test(link))
    .map((link) => {
      const value = (/** @type {string} */ name) => (new RegExp(`;\\s*${name}="([^"]*)"`).exec(link) || [])[1];
      const server = { urls: (/<([^>]*)>/.exec(link) || ["", ""])[1] };
      const username = value("username");
      return username ? { ...server, username, credential: value("credential") ?? "" } : server;
    });
}
