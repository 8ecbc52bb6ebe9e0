// One Worker: its slots, what is held against it, and how to take it out of service.

import { call, get, may, quoted } from "/console/api.js";
import { ask, card, clock, el, fill, liveLink, number, pill, plural, row, say, span, table, TONES, workerLink } from "/console/dom.js";
import { eventList } from "/console/events.js";
import { fleet, onChange } from "/console/fleet_state.js";

const AGAIN_MS = 3000; // Acks and drains are no changes of the fleet: while the page is seen, they are read this often.
const SHOWN = 200; // Slots and lives of a drain that are listed; further ones are counted.

export async function workerPage(main, [worker], signal) {
  const path = quoted`/v1/workers/${worker}`;
  const parts = { head: el("section.card.wide"), slots: el(".slotlist"), blame: el(".blame"), drain: el("section.card.wide", { hidden: true }), crashes: el(".crashes") };
  const events = eventList((event) => event.worker === worker || Object.values(event.numbers).includes(worker));
  let shown = await get(path, { signal });
  let drain = await get(`${path}/drain`, { signal });
  let acks = new Map(); // Slot to its last acked item, and since when this page has seen no other.
  const since = shown.at_ms;
  fill(
    main,
    parts.head,
    parts.drain,
    card("Slots", { class: "card main" }, parts.slots),
    el(".side", {}, card("Blame", {}, parts.blame), card("Crashes and blocked loops", {}, parts.crashes), card("Events", { aside: events.filter }, events.box)),
  );
  draw();
  events.draw("");

  let reading = false;
  async function read() {
    if (reading || signal.aborted) return;
    reading = true;
    try {
      [shown, drain] = await Promise.all([get(path, { signal }), get(`${path}/drain`, { signal })]);
      if (!signal.aborted) draw();
    } catch (error) {
      if (!signal.aborted && error.status === 404) fill(parts.head, el("h1", {}, worker), el("p.note", { "data-bad": true }, error.message));
    } finally {
      reading = false;
    }
  }
  const timer = setInterval(() => document.hidden || read(), AGAIN_MS);
  const stop = onChange((told) => {
    if (told.workers.has(worker) || told.all) read();
    if (told.events) {
      events.draw();
      drawCrashes();
    }
  });
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    stop();
  });

  async function act(does, method, target, body) {
    try {
      await call(method, target, { body });
      say(`${does}: ${worker}`);
    } catch (error) {
      say(error.message, "bad");
    }
    read();
  }

  function draw() {
    fill(
      parts.head,
      el(".head", {}, el("h1", {}, worker), pill(shown.status, TONES[shown.status]), el(".row.end", {}, ...buttons())),
      el(
        "dl.facts",
        {},
        ...(shown.cell ? fact("Cell", shown.cell) : []),
        ...fact("Pool", shown.pool),
        ...fact("Slots taken", `${shown.load} of ${shown.capacity}`),
        ...fact("Starting", shown.starting),
        ...fact("Moving away", shown.cutovers),
        ...fact("Registrations lately", shown.boots),
        ...fact("Reports", number(shown.beat)),
        ...fact("Loop lag", lagOf(shown.loop_lag_ms)),
        ...fact("Linked to", shown.link || "no replica"),
        ...fact("Labels", shown.labels || "none"),
        ...(shown.devices.length ? fact("Devices", shown.devices.map((each) => `${each.name}${each.blamed ? ` (blamed, ${plural(each.crashes, "crash", "crashes")})` : ""}`).join(", ")) : []),
        ...sameName(),
      ),
    );
    drawDrain();
    const before = acks;
    acks = new Map();
    const rows = shown.slots.slice(0, SHOWN).map((slot) =>
      row(
        el("td", {}, liveLink(slot.tenant, slot.live_id)),
        el("td", {}, el("span.state", {}, el("i", { dataset: { state: slot.state } }), slot.state, slot.stalled ? " (stalled)" : "")),
        slot.digital_id,
        slot.number,
        slot.committed_at_ms ? span(shown.at_ms - slot.committed_at_ms) : "",
        slot.committed_at_ms ? lastAck(slot, before) : "",
        slot.committed_at_ms ? number(slot.pending) : "",
      ),
    );
    fill(parts.slots, table(["Live", "State", "DigitalID", "Epoch", "For", "Last ack", "Pending"], rows, "No slot is taken."));
    if (shown.slots.length > SHOWN) parts.slots.append(el("p.note", {}, `${plural(shown.slots.length - SHOWN, "slot")} more.`));
    fill(
      parts.blame,
      el("p.note", {}, `Troubles of the name ${shown.name} within ${span(1000 * shown.blame_window_s)}; past a limit the Worker is cordoned.`),
      ...shown.troubles.map((each) => meter(each)),
    );
    drawCrashes();
  }

  // The store keeps the number of the last ack, not its time; the page knows how long it has seen no other number.
  function lastAck(slot, before) {
    const key = `${slot.tenant}/${slot.live_id}/${slot.number}`;
    const was = before.get(key);
    const began = { acked: slot.acked, at: was ? shown.at_ms : Math.max(since, slot.committed_at_ms), seen: Boolean(was) };
    const { at, seen } = was?.acked === slot.acked ? was : began;
    acks.set(key, { acked: slot.acked, at, seen });
    if (!slot.acked) return "none";
    const ago = shown.at_ms - at;
    return `item ${number(slot.acked)}${seen ? `, ${span(ago)} ago` : ago ? `, over ${span(ago)} ago` : ""}`;
  }

  function sameName() {
    const others = [...fleet.workers.keys()].filter((each) => each !== worker && each.split("#")[0] === shown.name);
    return others.length ? fact("Other boots of this name", el("span", {}, ...others.slice(0, 5).flatMap((each) => [workerLink(each), " "]))) : [];
  }

  function drawCrashes() {
    const found = fleet.events.filter((event) => event.worker === worker && ["live_crashed", "worker_blocked", "crash_loop"].includes(event.kind)).slice(-8).reverse();
    fill(
      parts.crashes,
      ...found.map((event) =>
        el(
          ".crash",
          {},
          el("p.note", {}, `${clock(event.at_ms)} `, event.live_id ? liveLink(event.tenant, event.live_id) : event.kind === "worker_blocked" ? `loop blocked for ${span(event.numbers.blocked_ms)}` : ""),
          el("pre", {}, event.numbers.reason || event.numbers.frame || "no reason was given"),
        ),
      ),
    );
    if (!found.length) fill(parts.crashes, el("p.note", {}, "None in the latest events."));
  }

  function buttons() {
    if (!may("fleet:write")) return [];
    const cordoned = shown.mode === "cordoned";
    if (shown.mode === "draining") return [el("button", { type: "button", id: "undrain", onclick: cancelDrain }, "Cancel the drain")];
    return [
      cordoned
        ? el("button", { type: "button", id: "uncordon", onclick: () => act("Takes new lives again", "POST", `${path}/uncordon`, {}) }, "Uncordon")
        : el("button", { type: "button", id: "cordon", onclick: cordon }, "Cordon"),
      el("span.preview", { id: "preview", dataset: { tone: drain.free_elsewhere < drain.left ? "bad" : "soft" } }, `free slots elsewhere: ${number(drain.free_elsewhere)}, needed: ${number(drain.left)}`),
      el("button.danger", { type: "button", id: "drain", onclick: startDrain }, "Drain"),
    ];
  }

  async function cordon() {
    const kept = drain.left ? `Its ${plural(drain.left, "live")} stay${drain.left === 1 ? "s" : ""} and go${drain.left === 1 ? "es" : ""} on.` : "It has no lives now.";
    if (await ask(`Cordon ${worker}?`, ["The Worker gets no new lives until it is uncordoned.", kept, `The ${plural(Math.max(0, shown.capacity - shown.load), "free slot")} here can no longer be placed.`], "Cordon")) act("Cordoned", "POST", `${path}/cordon`, {});
  }

  async function startDrain() {
    const short = Math.max(0, drain.left - drain.free_elsewhere);
    const deadline = el("input", { id: "deadline", type: "number", min: "0", max: "86400", placeholder: "none" });
    const lines = [
      `${plural(drain.left, "live")} will move to other Workers, each at the end of a sentence. The Worker gets no new lives.`,
      `Free slots elsewhere: ${number(drain.free_elsewhere)}, needed: ${number(drain.left)}.`,
      ...(short ? [el("p", { dataset: { tone: "bad" } }, `${plural(short, "live")} will find no slot, and stay here until there is one.`)] : []),
    ];
    const fields = [el("label", { for: "deadline" }, "Cut over whatever is left after so many seconds (empty: wait)"), deadline];
    if (await ask(`Drain ${worker}?`, lines, `Move ${plural(drain.left, "live")}`, { fields })) {
      act("Draining", "POST", `${path}/drain`, deadline.value ? { deadline_s: Number(deadline.value) } : {});
    }
  }

  async function cancelDrain() {
    if (await ask(`Cancel the drain of ${worker}?`, [`${plural(drain.left, "live")} that ${drain.left === 1 ? "has" : "have"} not moved stay${drain.left === 1 ? "s" : ""} here. The Worker takes new lives again. What has moved does not come back.`], "Cancel the drain")) act("Drain cancelled", "DELETE", `${path}/drain`);
  }

  function drawDrain() {
    parts.drain.hidden = drain.mode !== "draining";
    if (parts.drain.hidden) return;
    const left = drain.deadline_in_s === null ? "" : `, the deadline is in ${span(1000 * drain.deadline_in_s)}`;
    const rows = drain.details.slice(0, SHOWN).map((each) => row(el("td", {}, liveLink(each.tenant, each.live_id)), el("td", {}, pill(each.state, { blocked: "bad", moving: "good" }[each.state])), el("td", {}, workerLink(each.target)), el("td.wrap", {}, each.reason)));
    fill(
      parts.drain,
      el(".head", {}, el("h2", {}, drain.done ? "Drained: nothing is left here" : "Draining"), el("span.note", {}, `${number(drain.moved)} of ${plural(drain.lives, "live")} moved${left}`)),
      el(".bar.big", { role: "progressbar", "aria-valuenow": drain.moved, "aria-valuemax": drain.lives, "aria-label": "lives moved" }, el("i", { dataset: { state: "running" }, style: { width: `${drain.lives ? (100 * drain.moved) / drain.lives : 100}%` } }), el("i", { dataset: { state: "starting" }, style: { width: `${drain.lives ? (100 * drain.moving) / drain.lives : 0}%` } })),
      el("p.note", {}, `${number(drain.moving)} moving, ${number(drain.waiting)} waiting, ${number(drain.queued)} queued, ${number(drain.blocked)} blocked, ${number(drain.departing)} stopping; free slots elsewhere: ${number(drain.free_elsewhere)}, needed: ${number(drain.left)}`),
      rows.length ? table(["Live", "State", "To", "Why it is still here"], rows) : null,
    );
  }
}

function lagOf(ms) {
  if (!ms) return ms === 0 ? "under 50 ms" : "not known";
  return el("span.tone", { dataset: { tone: "warn" }, title: "at worst within a minute" }, span(ms));
}

function fact(name, value) {
  return [el("div", {}, el("dt", {}, name), el("dd", {}, value))];
}

function meter({ kind, count, count_max: most }) {
  const tone = count > most ? "bad" : count * 2 > most ? "warn" : "good";
  const words = { loss: "times lost", stall: "lives stalled here", crash: "lives whose runtime ended here" }[kind] || kind;
  return el(".meter", { dataset: { tone } }, el("span", {}, words), el("b", {}, `${count} of ${most}`), el(".bar", {}, el("i", { dataset: { state: tone === "good" ? "running" : tone }, style: { width: `${Math.min(100, (100 * count) / Math.max(1, most))}%` } })));
}
