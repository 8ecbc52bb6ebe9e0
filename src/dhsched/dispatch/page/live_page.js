// One live: its generations, how its input moves, why it is where it is, and what can be done about it.

import { call, follow, get, may, quoted } from "/console/api.js";
import { ask, bytes, card, clock, el, fill, number, pill, plural, row, say, span, table, TONES, workerLink, write } from "/console/dom.js";
import { eventList, toneOf } from "/console/events.js";
import { drawGenerations } from "/console/generations.js";
import { fleet, onChange } from "/console/fleet_state.js";
import { pictureOf } from "/console/picture.js";
import { drawWhy } from "/console/why.js";

const HAPPENED_MAX = 40; // Events of the live that are kept here.
const SHOWN_MAX = 4096; // Characters of a saved state that are shown.
const SOON_MS = 300; // A burst of changes is read once.

export async function livePage(main, [tenant, live], signal) {
  const path = quoted`/v1/lives/${live}`;
  const options = { tenant, signal };
  const parts = Object.fromEntries(["generations", "why", "letters", "values", "saved", "emits", "happened", "logs"].map((name) => [name, el(`.${name}`)]));
  parts.head = el("section.card.wide");
  const cursors = el(".cursors");
  const picture = pictureOf(tenant, live, signal);
  const events = eventList((event) => event.live_id === live && event.tenant === tenant);
  let shown = await get(path, options);
  let soon = 0; // Timers of what is read and drawn once for many changes.
  let moving = 0;
  const kept = { emitted: [], happened: [], interrupts: [] };
  let rows = []; // Of the history: the times of commits and claims.
  let drift = 0; // The store's clock less this browser's, as far as is known.
  fill(
    main,
    parts.head,
    card("Generations", { class: "card wide" }, parts.generations),
    el(".main", {}, card("Input", {}, cursors), card("Dead letters", {}, parts.letters), card("Config and metadata", {}, parts.values), card("Saved state", {}, parts.saved), card("Log of its runtimes", {}, parts.logs)),
    el(".side", {}, picture.box, may("fleet:read") ? card("Why it is there", {}, parts.why) : null, card("Messages of its runtime", {}, parts.emits), card("What happens", {}, parts.happened), may("fleet:read") ? card("Events of the fleet", { aside: events.filter }, events.box) : null),
  );
  draw();
  events.draw("");
  await Promise.all([readHistory(), readRest()]);

  // -- reading

  async function readHistory() {
    const history = await get(`${path}/history`, options);
    rows = history.generations;
    const newest = Math.max(...history.generations.map((each) => Math.max(each.first_ack_at_ms, each.claimed_at_ms, each.committed_at_ms)));
    drift = Math.max(drift, newest - Date.now());
    const crashes = fleet.events.filter((event) => event.kind === "live_crashed" && event.live_id === live && event.tenant === tenant);
    const crashed = new Map(crashes.map((event) => [event.numbers.epoch, event.at_ms]));
    fill(parts.generations, ...drawGenerations(history, Date.now() + drift, { crashed, interrupts: kept.interrupts }));
    drawMoving();
  }

  async function readRest() {
    const [letters, saved, log, why] = await Promise.all([
      get(`${path}/dead-letters`, options),
      get(`${path}/state`, options),
      get(`${path}/logs`, options),
      may("fleet:read") ? get(`${path}/why`, options).catch((error) => error) : null,
    ]);
    drawLetters(letters.items);
    fill(parts.saved, ...drawSaved(saved));
    const lines = log.lines.slice(-40).map((each) => el("li", {}, el("time", {}, clock(each.at_ms)), el("small", {}, `${each.epoch} ${each.source}`), el("span", {}, each.text)));
    fill(parts.logs, lines.length ? el("ol.lines", {}, ...lines) : el("p.note", {}, "No lines."));
    if (why) fill(parts.why, ...(why instanceof Error ? [el("p.note", {}, why.message)] : drawWhy(why)));
  }

  function readSoon() {
    soon ||= setTimeout(async () => {
      soon = 0;
      if (signal.aborted) return;
      try {
        shown = await get(path, options);
        draw();
        await Promise.all([readHistory(), readRest()]);
      } catch (error) {
        if (!signal.aborted) say(error.message, "bad");
      }
    }, SOON_MS);
  }

  follow(`${path}/events`, {
    tenant,
    signal,
    on: {
      event(name, data, first) {
        if (name === "acked" || name === "released") Object.assign(shown, data);
        if (name === "emitted") kept.emitted.unshift(data);
        else if (name !== "released" && name !== "acked") happened(name, data, first ? 0 : Date.now() + drift);
        for (const list of Object.values(kept)) list.length = Math.min(list.length, HAPPENED_MAX);
        if (["committed", "claimed", "stalled", "dropped", "interrupted", "ended"].includes(name)) readSoon();
        drawMoving();
      },
    },
  });
  // Note an event. Of the live's present state, which comes first on every connection, only the commit and the claim have a
  // known time (`at` is 0), and what was noted before the connection broke is not noted again.
  function happened(name, data, at) {
    const text = JSON.stringify([name, data]);
    if (!at && kept.happened.some((each) => each.text === text)) return;
    kept.happened.unshift({ name, data, at, text });
    if (name === "interrupted" && at) kept.interrupts.unshift({ at, seq: data.seq });
  }

  function timeOf({ name, data, at }) {
    const row = rows.find((each) => each.epoch === data.epoch);
    return row?.[`${name}_at_ms`] || at;
  }

  const stop = onChange((told) => {
    if (told.lives.some((each) => each.live_id === live && each.tenant === tenant)) readSoon();
    if (told.events) events.draw();
  });
  const timer = setInterval(() => document.hidden || drawMoving(), 1000);
  signal.addEventListener("abort", () => {
    stop();
    clearInterval(timer);
    clearTimeout(soon);
  });

  // -- drawing

  function drawMoving() {
    moving ||= requestAnimationFrame(() => {
      moving = 0;
      shown.appended = Math.max(shown.appended, shown.released, shown.acked);
      drawCursors();
      fill(parts.emits, kept.emitted.length ? el("ol.lines", {}, ...kept.emitted.map((each) => el("li", {}, el("small", {}, `${each.epoch}.${each.n}`), el("b", {}, each.name), el("span", {}, JSON.stringify(each.data))))) : el("p.note", {}, "None."));
      fill(parts.happened, kept.happened.length ? el("ol.lines", {}, ...kept.happened.map((each) => el("li", {}, el("time", {}, clock(timeOf(each)) || "earlier"), el("b", { dataset: { tone: toneOf(each.name) } }, each.name), el("span", {}, words(each.data))))) : el("p.note", {}, "Nothing yet."));
    });
  }

  function draw() {
    fill(
      parts.head,
      el(".head", {}, el("h1", {}, live), pill(shown.state, TONES[shown.state]), shown.stalled ? pill("stalled", "bad") : null, shown.waiting_for.length ? pill(`waits for ${shown.waiting_for.join(", ")}`, "warn") : null, el(".row.end", {}, ...buttons())),
      el(
        "dl.facts",
        {},
        ...facts({
          Tenant: tenant,
          ...(shown.cell ? { Cell: shown.cell } : {}),
          DigitalID: shown.digital_id,
          Worker: el("span", {}, workerLink(shown.worker), shown.claimed || shown.state === "ended" ? "" : " (not claimed)"),
          Epoch: shown.epoch,
          Priority: shown.priority,
          Age: span(Date.now() + drift - shown.created_at_ms),
          Moving: shown.move ? `to ${shown.move.target}` : "no",
          Tries: shown.tries,
          Labels: shown.labels.join(", ") || "none",
        }),
      ),
      shown.crash ? el(".crash", {}, el("p.note", { "data-bad": true }, `Epoch ${shown.crash.epoch} crashed on ${shown.crash.worker}`), el("pre", {}, shown.crash.reason)) : null,
    );
    fill(parts.values, el("h3", {}, "Config"), el("pre", {}, JSON.stringify(shown.config, null, 2)), el("h3", {}, "Metadata"), el("pre", {}, JSON.stringify(shown.metadata, null, 2)));
    picture.draw(shown);
    drawMoving();
  }

  function drawCursors() {
    const { appended, released, acked } = shown;
    const share = (n) => `${appended ? (100 * n) / appended : 0}%`;
    const dropped = Object.entries(shown.dropped).filter(([, n]) => n).map(([cause, n]) => `${number(n)} by ${cause}`);
    if (!cursors.firstChild) fill(cursors, el(".bar.big", {}, el("i", { dataset: { state: "running" } }), el("i", { dataset: { state: "starting" } }), el("i", { dataset: { state: "reserved" } })), el("p"), el("p.note"));
    const [bar, line, note] = cursors.children;
    const widths = [share(acked), share(Math.max(0, released - acked)), share(Math.max(0, appended - Math.max(released, acked)))];
    widths.forEach((width, n) => bar.children[n].style.setProperty("width", width));
    write(line, `${number(acked)} acked, ${number(released)} released, ${number(appended)} appended; ${number(Math.max(0, appended - acked))} pending`);
    write(note, dropped.length ? `Dropped: ${dropped.join(", ")}` : "Nothing was dropped.");
  }

  function drawLetters(items) {
    const rows = items.map((each) =>
      row(
        el("td.wrap", {}, each.text || each.kind),
        el("td.wrap", {}, el("pre", {}, each.reason || "")),
        el("td", {}, may("lives:write", "fleet:write") ? el(".row.tight", {}, el("button.small", { type: "button", onclick: () => pushAgain(each) }, "Push again"), el("button.small.danger", { type: "button", onclick: () => drop(each) }, "Drop")) : ""),
      ),
    );
    fill(parts.letters, table(["Input", "Why its last runtime died", ""], rows, "None."));
  }

  // -- acting

  function buttons() {
    if (shown.state === "ended") return [];
    return [
      may("lives:push") ? el("button", { type: "button", id: "interrupt", onclick: interrupt }, "Interrupt") : null,
      may("fleet:write") ? el("button", { type: "button", id: "reassign", onclick: reassign }, "Reassign") : null,
      may("lives:write", "fleet:write") ? el("button.danger", { type: "button", id: "end", onclick: end }, "End") : null,
    ];
  }

  async function act(does, method, target, body) {
    try {
      await call(method, target, { body, tenant });
      say(`${does}: ${live}`);
    } catch (error) {
      say(error.message, "bad");
    }
    readSoon();
  }

  const pending = () => Math.max(0, shown.appended - shown.acked);

  async function interrupt() {
    if (await ask(`Interrupt ${live}?`, [`The ${plural(pending(), "pending item")} will be dropped, and the runtime stops what it says.`, "1 live is affected. What is dropped does not come back."], "Interrupt")) act("Interrupted", "POST", `${path}/text`, { kind: "interrupt", request_id: crypto.randomUUID?.() || `console-${Date.now()}` });
  }

  async function reassign() {
    const target = el("input", { id: "target", type: "text", placeholder: "wherever a slot is free", maxlength: "140", autocomplete: "off" });
    const lines = [`1 live leaves ${shown.worker} at once, in the middle of a sentence if it is speaking. Its next generation gets again what was not acked (${plural(pending(), "item")} pending).`];
    if (await ask(`Reassign ${live}?`, lines, "Reassign", { fields: [el("label", { for: "target" }, "Worker to go to"), target] })) {
      act("Reassigned", "POST", `${path}/reassign`, { expected_epoch: shown.epoch, ...(target.value.trim() ? { target: target.value.trim() } : {}) });
    }
  }

  async function end() {
    const patient = el("input", { id: "patient", type: "checkbox" });
    const lines = [`1 live ends, for good: its runtime stops, and ${plural(pending(), "pending item")} will be dropped unless you wait for ${pending() === 1 ? "it" : "them"}.`];
    const fields = [el("label.check", {}, patient, " End after the pending input")];
    if (await ask(`End ${live}?`, lines, "End 1 live", { fields })) act("Ended", "POST", `${path}/end`, patient.checked ? { after_pending: true } : {});
  }

  async function pushAgain(letter) {
    if (await ask("Push this input again?", ["1 item is appended to the live's input once more. If the runtime dies of it again, it comes back here.", el("pre", {}, letter.text)], "Push again", { danger: false })) act("Pushed again", "POST", `${path}${quoted`/dead-letters/${letter.id}/push`}`, {});
  }

  async function drop(letter) {
    if (await ask("Drop this dead letter?", ["1 item is deleted, for good.", el("pre", {}, letter.text)], "Drop")) act("Dropped", "DELETE", `${path}${quoted`/dead-letters/${letter.id}`}`);
  }
}

function facts(given) {
  return Object.entries(given).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

function words(data) {
  return Object.entries(data).filter(([name]) => name !== "live_id").map(([name, value]) => `${name} ${value}`).join(", ");
}

function drawSaved(saved) {
  if (!saved.bytes) return [el("p.note", {}, "Nothing was saved.")];
  const text = saved.hex === null ? JSON.stringify(saved.value, null, 2) : saved.hex.replace(/(.{2})(?=.)/g, "$1 ");
  const cut = text.length > SHOWN_MAX || (saved.hex !== null && saved.hex.length < 2 * saved.bytes);
  return [el("p.note", {}, `${bytes(saved.bytes)}, saved with the ack of item ${number(saved.seq)}${cut ? "; this is its beginning" : ""}`), el("pre.saved", {}, text.slice(0, SHOWN_MAX))];
}
