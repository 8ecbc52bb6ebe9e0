// Fleet: Pools with their waterlines, every Worker, who serves the deployment, and the events of what is selected.

import { may } from "/console/api.js";
import { card, el, fill, note, number, percent, pill, plural, row, span, table, TONES, workerHref, write } from "/console/dom.js";
import { eventList } from "/console/events.js";
import { fleet, onChange } from "/console/fleet_state.js";
import { describe, WorkerMap } from "/console/worker_map.js";

const BARRED = ["new", "cordoned", "draining", "lost", "gone"];

export async function fleetPage(main, _given, signal) {
  if (!may("fleet:read")) {
    fill(main, card("No view of the fleet", { class: "card wide" }, el("p.note", {}, "This key may not see the fleet. Type the id of a live above to go to it.")));
    return;
  }
  let pool = "";
  let worker = "";
  const map = new WorkerMap((chosen) => select(pool, chosen === worker ? "" : chosen));
  const pools = el(".pools");
  const chosen = el(".chosen");
  const events = eventList((event) => matches(event));
  const serving = el(".serving");
  const cells = el(".cells");
  const cellsCard = card("Cells", { class: "card wide", hidden: true }, cells);
  const counts = el("span.note");
  fill(
    main,
    cellsCard,
    card("Pools", { class: "card wide" }, pools),
    card("Workers", { class: "card main", aside: counts }, map.legend, map.box, chosen),
    card("Events", { class: "card side", aside: events.filter }, events.box),
    card("Who serves", { class: "card wide" }, serving),
  );

  function matches(event) {
    if (worker) return event.worker === worker || Object.values(event.numbers).includes(worker);
    if (pool) return fleet.workers.get(event.worker)?.pool === pool || event.numbers.pool === pool;
    return true;
  }

  function isShown(row) {
    return row && (!pool || row.pool === pool);
  }

  function select(nextPool, nextWorker) {
    pool = nextPool;
    worker = nextWorker;
    map.select(worker);
    drawPools();
    drawWorkers();
    drawChosen();
    events.draw(worker ? `of ${worker}` : pool ? `of Pool ${pool}` : "");
  }

  function drawPools() {
    const rows = fleet.summary?.pools || [];
    fill(pools, ...rows.map((each) => poolRow(each, each.name === pool, () => select(pool === each.name ? "" : each.name, ""))));
    if (!rows.length && fleet.summary) fill(pools, note("There is no Pool yet. Put one with `dhsched pool put`."));
    if (fleet.summary?.pools_left_out) pools.append(el("p.note", {}, `${plural(fleet.summary.pools_left_out, "Pool")} more are not listed.`));
  }

  let rows = []; // The Workers that are shown, in order: sorted anew only when others come or go.
  let places = new Map();

  function drawWorkers(changed) {
    if (!changed || [...changed].some((name) => !places.has(name) && isShown(fleet.workers.get(name)))) {
      rows = [...fleet.workers.values()].filter(isShown);
      rows.sort((a, b) => (a.pool === b.pool ? compare(a.worker, b.worker) : a.pool < b.pool ? -1 : 1));
      places = new Map(rows.map((each, n) => [each.worker, n]));
      map.draw(rows);
    } else {
      for (const name of changed) if (places.has(name)) rows[places.get(name)] = fleet.workers.get(name);
      map.draw(rows, changed);
    }
    const out = rows.filter((each) => each.status !== "ready").length;
    write(counts, fleet.whole ? `${plural(rows.length, "Worker")}${pool ? ` of ${pool}` : ""}${out ? `, ${number(out)} ${out === 1 ? "takes" : "take"} nothing new` : ""}` : "reading");
    if (fleet.whole && !rows.length) fill(map.box, note("There is no Worker. Start one with `dhsched run worker`."));
  }

  function drawChosen() {
    const found = fleet.workers.get(worker);
    fill(chosen, found && el(".row", {}, pill(found.status, TONES[found.status]), el("span", {}, describe(found)), el("a.button.primary", { href: workerHref(worker) }, `Open ${worker}`)));
  }

  function drawCells() {
    const found = fleet.summary?.cells || [];
    cellsCard.hidden = !found.length;
    const rows = found.map((each) =>
      row(
        each.name,
        el("td", {}, each.ready ? pill("ready", "good") : pill(each.trouble, "bad")),
        ...(each.ready ? [number(each.workers), number(each.lives), `${number(each.free)} of ${number(each.capacity)}`, each.home.split(/[@ ]/)[0].slice(0, 12)] : ["", "", "", ""]),
      ),
    );
    if (found.length) fill(cells, table(["Cell", "Ready", "Workers", "Lives", "Free slots", "Home"], rows));
  }

  function drawServing() {
    const rows = fleet.replicas.map((each) =>
      row(
        el("td", {}, { dispatch: "Dispatch", infer: "Infer-Controller" }[each.role] || each.role),
        each.name,
        each.version,
        el("td", {}, each.ready ? pill("ready", "good") : pill(each.missing.join("; "), "bad")),
        span(1000 * each.up_s),
        each.safety ? `${each.safety.dual_owners} ${each.safety.overshoots} ${each.safety.drift}` : "",
        each.url,
      ),
    );
    fill(serving, table(["Role", "Name", "Version", "Ready", "Up for", "Safety", "Address"], rows, "Nobody has told of itself yet."));
  }

  const stop = onChange((told) => {
    if (told.all || told.workers.size) drawWorkers(told.all ? undefined : told.workers);
    if (told.workers.has(worker) || told.all) drawChosen();
    if (told.summary) {
      drawCells();
      drawPools();
      drawServing();
    }
    if (told.events) events.draw();
  });
  signal.addEventListener("abort", () => {
    stop();
    map.stop();
  });
  select("", "");
  drawCells();
  drawServing();
}

const compare = new Intl.Collator("en", { numeric: true }).compare;

function poolRow(pool, selected, onSelect) {
  const all = pool.capacity + BARRED.reduce((sum, status) => sum + (pool.barred[status]?.capacity || 0), 0);
  const part = (slots, state, title) => slots > 0 && el("i", { dataset: { state }, title, style: { width: `${(100 * slots) / Math.max(1, all)}%` } });
  const out = BARRED.filter((status) => pool.barred[status]);
  return el(
    "button.pool",
    { type: "button", "aria-pressed": String(selected), onclick: onSelect, dataset: { pool: pool.name } },
    el("b", {}, pool.name),
    el("span.bar", { "aria-hidden": "true" }, part(pool.load, pool.waterline >= 0.95 ? "full" : "running", `${number(pool.load)} taken`), part(pool.free, "free", `${number(pool.free)} free`), ...out.map((status) => part(pool.barred[status].capacity, status, `${number(pool.barred[status].capacity)} slots ${status}`))),
    el("span.figures", {}, el("b", {}, percent(pool.waterline)), ` ${number(pool.load)} of ${number(pool.capacity)} taken, ${number(pool.free)} free`),
    el(
      "span.asides",
      {},
      ...out.map((status) => el("span", { dataset: { tone: TONES[status] } }, `${plural(pool.barred[status].workers, "Worker")} ${status}: ${number(pool.barred[status].load)} of ${plural(pool.barred[status].capacity, "slot")} taken`)),
      pool.waiting ? el("span", { dataset: { tone: "warn" } }, `${plural(pool.waiting, "live")} waiting`) : null,
      el("span", {}, `spread ${pool.spread_pct} %`),
      pool.advised_lives
        ? el("span", { dataset: { tone: "warn" }, title: pool.advice.map((each) => `${each.lives} from ${each.source} to ${each.target}`).join("\n") }, `uneven: ${plural(pool.advised_lives, "live")} ${pool.rebalance === "act" ? "being moved" : "would move"}`)
        : el("span", {}, "no advice"),
    ),
  );
}
