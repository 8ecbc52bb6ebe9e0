// The connection to the room: one offer, one answer, and again after a while when it was lost.
// A change of Worker is not seen here at all: the connection belongs to the room.

import { shown } from "/page/token.js";

const BACKOFF_FIRST_MS = 500;
const BACKOFF_MAX_MS = 5000;
const CONNECT_MS = 10000; // The room gives up an offer without packets after a few seconds, and cannot say so.
const DISCONNECTED_MS = 4000;
const FINAL = ["NOT_FOUND", "ENDED", "UNAUTHORIZED", "FORBIDDEN"]; // To try again does not help.

export class Whep {
  constructor(url, { onStream, onState }) {
    this.url = url;
    this.onStream = onStream;
    this.onState = onState;
    this.pc = null;
    this.connects = 0; // Connections that came up: more than one means that the room was lost in between.
    this.backoff = BACKOFF_FIRST_MS;
    this.session = null;
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
      await pc.setLocalDescription(await pc.createOffer());
      // At once: the room finds us by our packets, and needs no address of ours.
      const response = await fetch(this.url, {
        method: "POST",
        headers: shown({ "Content-Type": "application/sdp" }),
        body: pc.localDescription.sdp,
        signal: AbortSignal.timeout(10000),
      });
      if (!response.ok) throw await refusal(response);
      this.session = new URL(response.headers.get("Location"), location.href).href;
      await pc.setRemoteDescription({ type: "answer", sdp: await response.text() });
      if (pc !== this.pc) return;
      this.connecting = setTimeout(() => this.lost(new Error("no packets reach the room")), CONNECT_MS);
    } catch (error) {
      if (pc === this.pc) this.lost(error);
    }
  }

  changed(pc) {
    if (pc !== this.pc) return;
    const state = pc.connectionState;
    if (state === "connected") {
      clearTimeout(this.connecting);
      this.connects += 1;
      this.backoff = BACKOFF_FIRST_MS;
    }
    clearTimeout(this.waiting);
    if (state === "failed") this.lost(new Error("the connection to the room was lost"));
    else if (state === "disconnected") {
      this.onState(state);
      this.waiting = setTimeout(() => this.lost(new Error("the room does not answer")), DISCONNECTED_MS);
    } else this.onState(state);
  }

  lost(error) {
    if (FINAL.includes(error.code)) return this.over(error.message);
    this.onState("failed", error.message);
    this.close();
    this.retry = setTimeout(() => this.start(), this.backoff);
    this.backoff = Math.min(this.backoff * 2, BACKOFF_MAX_MS);
  }

  // The page has a new token: the connection lasts as long as that one. Without a connection, begin one.
  async renew() {
    const renewed = this.session && fetch(`${this.session}/token`, { method: "POST", headers: shown() });
    const response = await Promise.resolve(renewed).catch(() => null);
    if (!response || !response.ok) this.start();
  }

  // The live has ended, or the token has: nothing more comes, and trying again is of no use.
  over(why) {
    this.onState("ended", why);
    this.close();
  }

  close() {
    for (const timer of [this.retry, this.waiting, this.connecting]) clearTimeout(timer);
    if (this.session) fetch(this.session, { method: "DELETE", headers: shown(), keepalive: true }).catch(() => {});
    this.session = null;
    if (this.pc) this.pc.close();
    this.pc = null;
  }
}

async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  const error = new Error(problem.detail || `the room answered ${response.status}`);
  error.code = problem.code;
  return error;
}
