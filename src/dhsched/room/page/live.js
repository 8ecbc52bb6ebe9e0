// The viewer's page: a live in <dhsched-live>, what it is told, who runs it. Everything comes from one origin, the room.

import "./dhsched-live.js";
import { span_ } from "./span.js";
import { drawTimeline } from "./timeline.js";
import { Transcript } from "./transcript.js";
import { takeToken } from "./token.js";

const KEPT_MAX = 5000;

const live = decodeURIComponent(location.pathname.split("/").pop());
const $ = (id) => document.getElementById(id);
const shown = $("live");

// What a test, or a curious person at the console, may look at.
const viewer = (window.viewer = {
  captions: [],
  frames: [],
  states: [],
  badges: [],
  state: null,
  video: shown.video,
  pc: () => shown.peer,
  connects: () => shown.connects,
});

const transcript = new Transcript($("transcript"), $("told"));
// A page that embeds this one may ask for the picture alone: /live/NAME?embed#token=...
const embedded = new URLSearchParams(location.search).has("embed");
document.body.toggleAttribute("data-embed", embedded);
shown.toggleAttribute("fill", embedded);
$("title").textContent = live;
document.title = `${live} - live`;

function keep(list, each) {
  list.push(each);
  if (list.length > KEPT_MAX) list.splice(0, KEPT_MAX / 2);
}

// -- picture and sound

shown.addEventListener("caption", ({ detail }) => keep(viewer.captions, detail));
shown.addEventListener("air", ({ detail }) => viewer.badges.push([Date.now(), detail.air]));
shown.addEventListener("connection", ({ detail: { state, reason } }) => {
  viewer.states.push([Date.now(), state]);
  $("connection").dataset.state = state;
  $("connection").textContent = { failed: "connecting again", ended: "over" }[state] || state;
  $("connection").title = reason;
  document.body.toggleAttribute("data-over", state === "ended"); // A new token begins again.
  if (state === "ended") transcript.over(); // An ended live offers nothing: nobody to talk to.
});

function onFrame() {
  keep(viewer.frames, Date.now());
  shown.video.requestVideoFrameCallback(onFrame);
}
shown.video.requestVideoFrameCallback(onFrame);

// -- who runs it

shown.addEventListener("state", ({ detail: state }) => {
  viewer.state = state;
  const owner = state.owner;
  $("worker").textContent = owner ? owner.worker || "nobody yet" : "Dispatch does not answer";
  $("epoch").textContent = owner ? owner.epoch : "-";
  $("cause").textContent = owner ? owner.cause : "-";
  $("state").textContent = owner ? (owner.state !== "open" ? owner.state : owner.claimed ? "running" : "starting") : "-";
  $("pending").textContent = owner ? owner.pending : "-";
  $("viewers").textContent = state.viewers;
  $("process").hidden = !state.pid;
  $("kill").textContent = state.pid ? `kill -9 ${state.pid}` : "";
  const last = state.said[state.said.length - 1];
  $("said").textContent = last ? last.identity || (transcript.isMine(last.seq) ? "you" : "somebody") : "-";
  const ended = shown.connection === "ended";
  for (const id of ["text", "send"]) $(id).disabled = ended || !state.may_say;
  $("interrupt").disabled = ended || !state.may_interrupt;
  transcript.show(state);
  drawTimeline(state, { bar: $("bar"), scaleFrom: $("scale-from"), rows: $("generations") });
  figures();
});

async function figures() {
  if (!shown.peer) return;
  const words = [];
  (await shown.peer.getStats()).forEach((report) => {
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

function note(text, bad = false) {
  $("note").textContent = text;
  $("note").toggleAttribute("data-bad", bad);
}

async function send() {
  const text = $("text").value.trim();
  if (!text) return $("text").focus();
  $("text").value = "";
  try {
    const answer = await shown.say(text);
    note(`accepted as item ${answer.seq}`);
    transcript.told(answer.seq, text);
  } catch (error) {
    if (!$("text").value) $("text").value = text;
    note(error.message, true);
  }
}

async function interrupt() {
  try {
    const answer = await shown.interrupt();
    note("interrupted");
    transcript.told(answer.seq, "(interrupted)", true);
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

// A page around this one renews the token by changing what is behind the # of our address.
addEventListener("hashchange", () => (shown.token = takeToken(live)));
shown.token = takeToken(live);
shown.src = location.pathname;
