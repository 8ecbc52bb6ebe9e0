// Recoveries: lives that must be placed anew or wait for a free slot: since when, why, and where in which queue.

import { get, may } from "/console/api.js";
import { card, el, fill, liveLink, number, pill, plural, row, span, table, workerLink, write } from "/console/dom.js";
import { fleet, onChange } from "/console/fleet_state.js";

const AGAIN_MS = 3000; // A queue may stand still while its lives grow older: it is read this often while it is seen.
const SHOWN = 200;

export async function recoveriesPage(main, _given, signal) {
  if (!may("fleet:read")) return fill(main, card("No view of the fleet", { class: "card wide" }, el("p.note", {}, "This key may not see the fleet.")));
  const list = el("div");
  const queues = el(".row");
  const note = el("span.note");
  fill(main, card("Recoveries", { class: "card wide", aside: note }, queues, list));
  let reading = false;

  async function read() {
    if (reading || signal.aborted) return;
    reading = true;
    try {
      const page = await get(`/v1/recoveries?limit=${SHOWN}`, { signal });
      if (!signal.aborted) draw(page);
    } catch (error) {
      if (!signal.aborted) write(note, error.message);
    } finally {
      reading = false;
    }
  }

  function draw(page) {
    const now = fleet.summary ? fleet.summary.at_ms + Date.now() - fleet.readAt : Date.now();
    const ago = (ms) => (ms ? span(Math.max(0, now - ms)) : "");
    write(note, page.recoveries.length ? plural(page.recoveries.length, "live") + (page.next ? " or more" : "") : "");
    fill(queues, ...Object.entries(page.waiting).map(([pool, n]) => pill(`${number(n)} waiting for ${pool}`, "warn")));
    const rows = page.recoveries.map((each) =>
      row(
        el("td", {}, liveLink(each.tenant, each.live_id)),
        el("td", {}, pill(each.need, each.need === "well again" ? "good" : "bad")),
        el("td", {}, workerLink(each.source)),
        each.epoch,
        ago(each.since_ms || each.waiting_since_ms),
        number(each.tries),
        each.next_look_at_ms > now ? `in ${span(each.next_look_at_ms - now)}` : "now",
        each.waiting_for.map((line) => `${line.place} of ${line.of} for ${line.pool}`).join(", ") || "none",
        el("td.wrap", { dataset: { tone: each.unplaceable ? "bad" : "soft" } }, each.unplaceable || ""),
      ),
    );
    fill(list, table(["Live", "Need", "Leaves", "Epoch", "Since", "Tries", "Next look", "Place in a queue", "Why nobody may take it"], rows, "Every live has its Worker."));
  }

  await read();
  const timer = setInterval(() => document.hidden || read(), AGAIN_MS);
  const stop = onChange((told) => told.events && read());
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    stop();
  });
}
