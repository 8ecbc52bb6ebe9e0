// The generations of a live: a line of time with the gaps between them and the interrupts, and a row each with its phases as
// stacked bars.

import { clock, el, plural, row, span, table, workerLink } from "/console/dom.js";

export const PHASES = ["detect", "place", "wait", "claim", "first ack"];
const HUE_STEP = 137.5; // Degrees between the colours of two epochs: neighbours differ, and so do the next dozens.

// The phases of a generation in milliseconds. The wait for a slot is part of the placing, and is shown apart.
export function phasesOf(each) {
  const wait = each.wait_ms || 0;
  const found = [each.detect_ms, each.place_ms === null ? null : Math.max(0, each.place_ms - wait), each.wait_ms, each.claim_ms, each.first_ack_ms];
  return PHASES.map((name, n) => ({ name, ms: found[n] })).filter((phase) => phase.ms !== null && phase.ms !== undefined);
}

// `crashed` has the time at which the runtime of an epoch ended, as far as the events tell; `interrupts` have their time.
export function drawGenerations(history, now, { crashed = new Map(), interrupts = [] } = {}) {
  const rows = history.generations;
  // A new live may wait for its first input for hours, which says nothing of how quick a recovery was.
  const handoffs = rows.filter((each) => each.cause !== "create");
  const longest = Math.max(1, ...(handoffs.length ? handoffs : rows).map((each) => total(each)));
  const keys = el(".legend", { "aria-hidden": "true" }, ...PHASES.map((name) => el("span", {}, el("i", { dataset: { phase: name } }), name)), interrupts.length ? el("span", {}, el("i.interrupt"), "interrupt") : null);
  const made = rows.map((each, n) =>
    row(
      el("td", {}, el("i.hue", { style: { "--hue": String((each.epoch * HUE_STEP) % 360) } }), each.epoch, n === 0 && !history.ended_at_ms ? " now" : ""),
      el("td", {}, workerLink(each.worker)),
      `${each.cause}${each.need ? `, ${each.need}` : ""}`,
      clock(each.committed_at_ms),
      el("td.phases", {}, stacked(each, longest)),
      el("td.wrap", {}, each.reason ? el("pre", {}, each.reason) : ""),
    ),
  );
  return [line(history, now, crashed, interrupts), keys, table(["Epoch", "Worker", "Cause", "At", "Phases", "Ended by"], made, "No generation yet.")];
}

function total(each) {
  return phasesOf(each).reduce((sum, phase) => sum + phase.ms, 0);
}

function stacked(each, longest) {
  const phases = phasesOf(each);
  if (!phases.length) return el("span.note", {}, each.claimed_at_ms ? "no phase is known" : "not claimed yet");
  const bar = el(".bar.stack", { style: { width: `${Math.min(100, Math.max(12, (100 * total(each)) / longest))}%` } }, ...phases.map((phase) => el("i", { dataset: { phase: phase.name }, title: `${phase.name} ${span(phase.ms)}`, style: { "flex-grow": String(Math.max(phase.ms, 1)) } })));
  return el("div", {}, bar, el("small", {}, phases.map((phase) => `${phase.name} ${span(phase.ms)}`).join(", ")));
}

// The time from the first known generation to now: who had the live when, the gaps in between, and what was interrupted.
function line(history, now, crashed, interrupts) {
  const rows = [...history.generations].reverse();
  if (!rows.length) return null;
  const end = history.ended_at_ms || now;
  const from = rows[0].committed_at_ms;
  const all = Math.max(1000, end - from);
  const place = (began, ended) => ({ left: `${(100 * (began - from)) / all}%`, width: `${Math.max(0.15, (100 * (ended - began)) / all)}%` });
  const pieces = [];
  rows.forEach((each, n) => {
    const next = rows[n + 1];
    const began = each.claimed_at_ms || each.committed_at_ms;
    // A source that was lost had stopped before it was noticed: the gap begins there.
    const stopped = crashed.get(each.epoch) || (next ? next.committed_at_ms - (next.detect_ms || 0) - (next.place_ms || 0) : end);
    const lasted = Math.max(began, Math.min(stopped, end));
    if (each.claimed_at_ms) {
      pieces.push(el(".stretch", { title: `${each.worker} in epoch ${each.epoch}, ${span(lasted - began)}`, style: { ...place(began, lasted), "--hue": String((each.epoch * HUE_STEP) % 360) } }, String(each.epoch)));
    }
    if (next) {
      const until = next.first_ack_at_ms || next.claimed_at_ms || end;
      if (until - lasted > 0) pieces.push(el(".stretch.gap", { title: `gap of ${span(until - lasted)} before epoch ${next.epoch}`, style: place(lasted, until) }));
    }
  });
  const gaps = pieces.filter((piece) => piece.classList.contains("gap")).length;
  for (const { at, seq } of interrupts) {
    if (at >= from) pieces.push(el("i.interrupt", { title: `interrupted by item ${seq} at ${clock(at)}`, style: { left: place(Math.min(at, end), end).left } }));
  }
  return el("div", {}, el(".timeline", { role: "img", "aria-label": [plural(rows.length, "generation"), plural(gaps, "gap"), ...(interrupts.length ? [plural(interrupts.length, "interrupt")] : [])].join(", ") }, ...pieces), el(".scale", {}, el("span", {}, `${clock(from)}, ${span(all)} ago`), el("span", {}, history.ended_at_ms ? "ended" : "now")));
}
