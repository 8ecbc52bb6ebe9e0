// The fleet as the feed of changes has told it, the summary, and the events: shared by all pages, kept in one place.

import { follow, may } from "/console/api.js";

const EVENTS_KEPT = 1000; // Older events are dropped here; the log of the fleet has more.

export const fleet = {
  workers: new Map(), // WorkerID to its row in the feed.
  events: [], // The latest last.
  summary: null,
  replicas: [],
  readAt: 0, // When the summary came, by this browser's clock.
  whole: false,
};

const listeners = new Set();
let dirty = { workers: new Set(), lives: [], all: false, events: 0, summary: false };
let waiting = 0;

// Be told what changed, at most every 200 ms: { workers: Set, lives: [], all, events, summary }. Returns how to stop.
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  waiting ||= setTimeout(() => requestAnimationFrame(flush), 200);
}

function flush() {
  waiting = 0;
  const told = dirty;
  dirty = { workers: new Set(), lives: [], all: false, events: 0, summary: false };
  const began = performance.now();
  for (const listener of [...listeners]) listener(told);
  timings.push(performance.now() - began);
  globalThis.consoleUpdates += 1;
  if (timings.length > 2000) timings.splice(0, 1000);
}

// What one update of the page took, for tests and for the curious.
const timings = (globalThis.consoleTimings = []);
globalThis.consoleUpdates = 0;

export function begin(signal, onState) {
  let coming = null;
  const on = {
    state: onState,
    event(name, data) {
      if (name === "summary") {
        fleet.summary = data.summary;
        fleet.replicas = data.replicas;
        fleet.readAt = Date.now();
        dirty.summary = true;
      } else if (name === "all") {
        if (data.first) coming = new Map();
        for (const row of data.workers) coming?.set(row.worker, row);
        if (data.last && coming) {
          fleet.workers = coming;
          fleet.whole = true;
          coming = null;
          dirty.all = true;
        }
      } else {
        for (const row of data.workers || []) {
          fleet.workers.set(row.worker, row);
          dirty.workers.add(row.worker);
        }
        for (const name_ of data.gone || []) {
          fleet.workers.delete(name_);
          dirty.all = true;
        }
        if (dirty.lives.length < 5000) dirty.lives.push(...(data.lives || []));
      }
      changed();
    },
  };
  follow("/v1/changes?summary=true", { signal, on }); // An app is told of its own lives, and of nothing else.
  if (!may("fleet:read")) return;
  follow("/v1/events?limit=200", {
    signal,
    on: {
      event(_name, data) {
        fleet.events.push(data);
        if (fleet.events.length > EVENTS_KEPT) fleet.events.splice(0, EVENTS_KEPT / 2);
        dirty.events += 1;
        changed();
      },
    },
  });
}
