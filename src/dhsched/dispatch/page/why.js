// Why a live is on its Worker: the Pools in the order in which they were tried, and the candidates with their loads.

import { el, number, percent, plural, workerLink } from "/console/dom.js";

const SHOWN = 16; // Candidates that are drawn.

export function drawWhy(why) {
  const told = why.explanation;
  const won = told.chosen;
  const when = why.explained === "then" ? "as it was decided" : "as it would be decided now";
  const head = won
    ? el("p", {}, workerLink(won.worker), ` at ${won.load_after} of ${won.capacity ?? "?"} (${won.load_before} before): ${won.reason}`)
    : el("p", {}, why.generation ? el("span", {}, workerLink(why.generation.worker), ", chosen by another replica or too long ago to remember") : "no Worker");
  return [
    el("p.note", {}, `${when}, by policy ${told.policy}`),
    head,
    ...told.pools.map((pool) => meter(`Pool ${pool.pool}`, pool.waterline, `${percent(pool.waterline)} full, ${number(pool.with_free_slot)} of ${plural(pool.workers, "Worker")} with a free slot`, "soft")),
    ...Object.entries(told.pools_excluded).map(([pool, reason]) => el("p.note", {}, `Pool ${pool}: ${reason}`)),
    ...told.candidates.slice(0, SHOWN).map((each) => meter(each.worker, (each.load + each.own) / Math.max(1, each.capacity), [`${each.load + each.own} of ${each.capacity}`, each.result, ...each.notes].filter(Boolean).join(", "), each.result === "chosen" ? "good" : "soft")),
    told.candidates.length > SHOWN ? el("p.note", {}, `${plural(told.candidates.length - SHOWN, "candidate")} more.`) : null,
    ...told.refusals.slice(0, SHOWN).map((each) => el("p.note", {}, `${each.worker} refused: ${each.reason}${each.load === null ? "" : ` (load ${each.load})`}`)),
  ];
}

function meter(name, share, text, tone) {
  return el(".meter", { dataset: { tone } }, el("span", {}, name), el("b", {}, text), el(".bar", {}, el("i", { dataset: { state: tone === "good" ? "running" : "departing" }, style: { width: `${Math.min(100, 100 * share)}%` } })));
}
