// The generations of the live: a bar over the last minutes and a table, both from what the room has shown.

import { span_ } from "./span.js";

const SPAN_MIN_MS = 60_000;
const SPAN_MAX_MS = 600_000;
const ROWS_MAX = 20;
const FRESH_MS = 400; // A stretch whose last picture is younger goes on.
const HUE_STEP = 137.5; // Degrees between the colours of two epochs: neighbours differ, and so do the next dozens.

export function drawTimeline(state, parts) {
  const { timeline, now_ms: now } = state;
  if (!timeline.length) return;
  const span = Math.min(SPAN_MAX_MS, Math.max(SPAN_MIN_MS, (now - timeline[0].began_ms) * 1.05));
  const from = now - span;
  const place = (began, ended) => ({
    left: `${Math.max(0, ((began - from) / span) * 100)}%`,
    width: `${Math.max(0, ((ended - Math.max(began, from)) / span) * 100)}%`,
  });
  const pieces = [];
  timeline.forEach((shown, n) => {
    const next = timeline[n + 1];
    const ended = next || now - shown.last_ms > FRESH_MS ? shown.last_ms : now;
    if (ended > from) {
      const label = `${shown.worker} in epoch ${shown.epoch}`;
      pieces.push(coloured(piece("stretch", place(shown.began_ms, ended), `${shown.epoch}`, label), shown.epoch));
    }
    const gapEnd = next ? next.began_ms : now;
    if (gapEnd - ended > 80 && gapEnd > from) {
      pieces.push(piece("stretch gap", place(ended, gapEnd), "", `no picture for ${span_(gapEnd - ended)}`));
    }
  });
  parts.bar.replaceChildren(...pieces);
  parts.scaleFrom.textContent = `${span_(span)} ago`;
  const rows = [...timeline].reverse().slice(0, ROWS_MAX).map((shown, n) => row(shown, n, state));
  parts.rows.replaceChildren(...rows);
}

function coloured(element, epoch) {
  element.style.setProperty("--hue", (epoch * HUE_STEP) % 360);
  return element;
}

function piece(kind, style, text, title) {
  const made = document.createElement("div");
  made.className = kind;
  made.textContent = text;
  made.title = title;
  Object.assign(made.style, style);
  return made;
}

function row(shown, n, state) {
  const made = document.createElement("tr");
  const going = n === 0 && shown.epoch === state.on_air && state.now_ms - shown.last_ms < FRESH_MS;
  made.toggleAttribute("data-now", going);
  made.dataset.epoch = shown.epoch;
  const since = new Date(shown.began_ms).toLocaleTimeString();
  const lasted = span_((going ? state.now_ms : shown.last_ms) - shown.began_ms);
  const gap = shown.gap_ms ? span_(shown.gap_ms) : "none";
  for (const text of [shown.epoch, shown.worker, lasted, gap, shown.cause, since]) {
    made.insertCell().textContent = text;
  }
  made.lastChild.className = "extra";
  return coloured(made, shown.epoch);
}
