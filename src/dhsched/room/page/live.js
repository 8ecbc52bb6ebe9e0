// The viewer's page: picture and sound, what the live is told, who runs it. Everything comes from one origin, the room.

import { drawTimeline, span_ } from "/page/timeline.js";
import { shown, takeToken } from "/page/token.js";
import { Whep } from "/page/whep.js";

const POLL_MS = 1000;
const STILL_MS = 900; // Without a new picture for so long, say so.
const FRAMES_MAX = 5000;

const live = decodeURIComponent(location.pathname.split("/").pop());
const api = `/v1/lives/${encodeURIComponent(live)}`;
const $ = (id) => document.getElementById(id);
const video = $("video");

// What a test, or a curious person at the console, may look at.
const viewer = (window.viewer = { frames: [], states: [], state: null, pc: () => whep.pc, connects: () => whep.connects });

takeToken(live);
// A page around this one renews the token by changing what is behind the # of our address.
addEventListener("hashchange", () => takeToken(live) && whep.renew());

$("title").textContent = live;
document.title = `${live} - live`;

// -- picture and sound

const whep = new Whep(`${api}/whep`, {
  onStream(stream) {
    video.srcObject = stream;
    play();
  },
  onState(state, why) {
    viewer.states.push([Date.now(), state]);
    $("connection").dataset.state = state;
    $("connection").textContent = { failed: "connecting again", ended: "over" }[state] || state;
    $("connection").title = why || "";
    if (state === "ended") veil(why);
  },
});

async function play() {
  try {
    await video.play();
  } catch {
    setSound(false); // A browser lets a page start by itself only without sound.
    await video.play().catch(() => {});
  }
}

function setSound(on) {
  video.muted = !on;
  $("sound").setAttribute("aria-pressed", on);
  $("sound-label").textContent = on ? "Sound is on" : "Turn sound on";
}

$("sound").addEventListener("click", () => {
  setSound(video.muted);
  play();
});

let lastFrame = 0;
function onFrame() {
  lastFrame = performance.now();
  viewer.frames.push(Date.now());
  if (viewer.frames.length > FRAMES_MAX) viewer.frames.splice(0, FRAMES_MAX / 2);
  $("veil").hidden = true;
  video.requestVideoFrameCallback(onFrame);
}
video.requestVideoFrameCallback(onFrame);

function veil(text) {
  $("veil").textContent = text;
  $("veil").hidden = false;
}

setInterval(() => {
  if (performance.now() - lastFrame < STILL_MS || $("connection").dataset.state === "ended") return;
  const owner = viewer.state && viewer.state.owner;
  if ($("connection").dataset.state !== "connected") veil("Connecting to the room");
  else if (!owner) veil("Waiting for a picture");
  else if (!owner.claimed) veil(`Epoch ${owner.epoch} is starting on ${owner.worker}`);
  else veil(lastFrame ? "The picture stands still; the next Worker takes over by itself" : "Waiting for the first picture");
}, 250);

// -- who runs it

async function poll() {
  try {
    const response = await fetch(`${api}/state`, { headers: shown(), signal: AbortSignal.timeout(5000) });
    if (response.ok) show(await response.json());
    else if ([401, 403].includes(response.status) && $("connection").dataset.state !== "ended") {
      whep.over((await response.json()).detail);
    }
  } catch {
    // The room is away; the connection says so.
  }
  await figures();
  setTimeout(poll, POLL_MS);
}

function show(state) {
  viewer.state = state;
  const owner = state.owner;
  if (owner && owner.state === "ended" && $("connection").dataset.state !== "ended") whep.over(`Live ${live} has ended`);
  $("worker").textContent = owner ? owner.worker || "nobody yet" : "Dispatch does not answer";
  $("epoch").textContent = owner ? owner.epoch : "-";
  $("cause").textContent = owner ? owner.cause : "-";
  $("state").textContent = owner ? (owner.state !== "open" ? owner.state : owner.claimed ? "running" : "starting") : "-";
  $("pending").textContent = owner ? owner.pending : "-";
  $("viewers").textContent = state.viewers;
  const last = state.said[state.said.length - 1];
  $("said").textContent = last ? last.identity || "somebody" : "-";
  for (const id of ["text", "send"]) $(id).disabled = !state.may_say;
  $("interrupt").disabled = !state.may_interrupt;
  drawTimeline(state, { bar: $("bar"), scaleFrom: $("scale-from"), rows: $("generations") });
}

async function figures() {
  if (!whep.pc) return;
  const words = [];
  (await whep.pc.getStats()).forEach((report) => {
    if (report.type === "candidate-pair" && report.nominated && report.currentRoundTripTime !== undefined) {
      words.push(`round trip ${span_(report.currentRoundTripTime * 1000)}`);
    }
    if (report.type !== "inbound-rtp") return;
    const buffered = report.jitterBufferEmittedCount
      ? `, buffer ${span_((report.jitterBufferDelay / report.jitterBufferEmittedCount) * 1000)}`
      : "";
    if (report.kind === "video") words.unshift(`${report.framesDecoded} pictures decoded${buffered}`);
  });
  $("figures").textContent = words.join(" · ");
}

// -- what it is told

async function say(item) {
  // The same id when it is tried again: the live is never told twice.
  const body = JSON.stringify({ ...item, request_id: newId() });
  for (let attempt = 1; ; attempt += 1) {
    try {
      const response = await fetch(`${api}/text`, {
        method: "POST",
        headers: shown({ "Content-Type": "application/json" }),
        body,
        signal: AbortSignal.timeout(8000),
      });
      const answer = await response.json().catch(() => ({}));
      if (response.ok) return answer;
      if (response.status < 500 || attempt === 3) throw new Error(answer.detail || `refused (${response.status})`);
    } catch (error) {
      if (attempt === 3 || error.name === "Error") throw error;
    }
    await new Promise((done) => setTimeout(done, 300 * attempt));
  }
}

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function note(text, bad = false) {
  $("note").textContent = text;
  $("note").toggleAttribute("data-bad", bad);
}

async function send() {
  const text = $("text").value.trim();
  if (!text) return $("text").focus();
  $("text").value = "";
  try {
    const answer = await say({ text, boundary: true });
    note(`accepted as item ${answer.seq}`);
  } catch (error) {
    if (!$("text").value) $("text").value = text;
    note(error.message, true);
  }
}

async function interrupt() {
  try {
    await say({ kind: "interrupt" });
    note("interrupted");
  } catch (error) {
    note(error.message, true);
  }
}

$("say").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
$("interrupt").addEventListener("click", interrupt);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing && !$("interrupt").disabled) interrupt();
});
addEventListener("pagehide", () => whep.close());
addEventListener("pageshow", (event) => event.persisted && whep.start());

whep.start();
poll();
