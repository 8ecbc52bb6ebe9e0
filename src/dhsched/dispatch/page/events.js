// The feed of fleet events: the latest first, of what is selected, with a filter by words.

import { clock, el, fill, liveLink, span, workerLink, write } from "/console/dom.js";
import { fleet } from "/console/fleet_state.js";

const SHOWN = 60; // Older events are in `dhsched events`.
const BAD = /lost|crash|blocked|blamed|unplaceable|poison|brake_on|two_primaries|drift|forced/;
const GOOD = /recovered|revived|registered|_done|brake_off|uncordoned|repaired/;

// A list of the events for which `wanted` holds. `draw(of)` draws it again; `of` says whose events these are.
export function eventList(wanted) {
  const box = el("ol.events");
  const of = el("span.note");
  const words = el("input.small", { type: "search", placeholder: "filter", "aria-label": "Show only events with these words", oninput: () => draw() });
  const filter = el(".row.tight", {}, of, words);
  let newest = null;
  let shownOf = null;
  let typed = null;

  function draw(whose) {
    if (whose !== undefined) write(of, whose);
    const last = fleet.events.at(-1)?.id;
    if (whose === undefined && last === newest && typed === words.value) return;
    [newest, shownOf, typed] = [last, of.textContent, words.value];
    const asked = words.value.trim().toLowerCase();
    const found = [];
    for (let n = fleet.events.length - 1; n >= 0 && found.length < SHOWN; n--) {
      const event = fleet.events[n];
      if (wanted(event) && (!asked || textOf(event).includes(asked))) found.push(event);
    }
    const drawn = new Map([...box.children].map((each) => [each.dataset.id, each]));
    fill(box, ...found.map((event) => drawn.get(event.id) || eventRow(event)));
    if (!found.length) fill(box, el("li.note", {}, `No events${shownOf ? ` ${shownOf}` : ""}.`));
  }
  return { box, filter, draw };
}

function textOf(event) {
  return `${event.kind} ${event.worker} ${event.tenant}/${event.live_id} ${JSON.stringify(event.numbers)}`.toLowerCase();
}

export function toneOf(kind) {
  return GOOD.test(kind) ? "good" : BAD.test(kind) ? "bad" : "soft";
}

function worded(name, value) {
  if (/_(at|since)_ms$/.test(name)) return clock(value);
  if (name.endsWith("_ms")) return span(value);
  if (name.endsWith("_s")) return span(1000 * value);
  return Array.isArray(value) ? value.join(", ") : value;
}

function eventRow(event) {
  const given = Object.entries(event.numbers).filter(([name, value]) => value !== "" && name !== "operation");
  const numbers = given.map(([name, value]) => `${name.replace(/_m?s$/, "").replaceAll("_", " ")} ${worded(name, value)}`);
  return el(
    "li",
    { dataset: { id: event.id, kind: event.kind } },
    el("time", {}, clock(event.at_ms)),
    el("b", { dataset: { tone: toneOf(event.kind) } }, event.kind.replaceAll("_", " ")),
    el("span", {}, workerLink(event.worker), event.worker && event.live_id ? " " : "", liveLink(event.tenant, event.live_id)),
    el("small", {}, [...numbers, event.by ? `by ${event.by}` : ""].filter(Boolean).join(", ")),
  );
}
