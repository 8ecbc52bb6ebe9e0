// The console: pages by the address behind the #, login, the line of truth, and the keyboard.

import { claims, get, keepToken, logIn, may, takeToken } from "/console/api.js";
import { ask, bytes, el, fill, note, number, plural, say, span, write } from "/console/dom.js";
import { fleet, begin, onChange } from "/console/fleet_state.js";
import { fleetPage } from "/console/fleet_page.js";
import { livePage } from "/console/live_page.js";
import { recoveriesPage } from "/console/recoveries_page.js";
import { workerPage } from "/console/worker_page.js";

const $ = (id) => document.getElementById(id);
const PAGES = { fleet: fleetPage, worker: workerPage, live: livePage, recoveries: recoveriesPage };
const ENDING_S = 300; // From here on the header says when the session ends.

let session = null; // Ends all streams of a login.
let page = null; // Ends what the shown page follows.
let last = "";

// -- pages

function show() {
  const [, name = "fleet", ...given] = location.hash.split("/").map(decode);
  const make = PAGES[name] || fleetPage;
  page?.abort();
  page = new AbortController();
  const shown = (last = location.hash);
  for (const link of $("nav").children) link.toggleAttribute("aria-current", link.dataset.page === name);
  document.title = ["dhsched", ...given.slice(-1)].reverse().join(" - ");
  fill($("main"));
  make($("main"), given, page.signal).catch((error) => {
    if (error.name === "AbortError" || last !== shown) return;
    fill($("main"), el("section.card.wide", {}, el("h2", {}, "This cannot be shown"), el("p.note", { "data-bad": true }, error.message)));
  });
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// -- login

function login(reason = "") {
  session?.abort();
  page?.abort();
  session = page = null;
  for (const id of ["nav", "find", "truth", "leave"]) $(id).hidden = true;
  $("feed").dataset.tone = "soft";
  write($("feed"), "not logged in");
  write($("who"), "");
  const key = el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", maxlength: "200", required: true, placeholder: "dhk_..." });
  const refusal = el("p.note", { id: "login-note", role: "alert", "data-bad": Boolean(reason) }, reason);
  const form = el(
    "form.card.login",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await logIn(key.value.trim());
          start();
        } catch (error) {
          refusal.setAttribute("data-bad", "");
          write(refusal, error.status === 401 ? "This key is not valid here." : error.message);
        }
      },
    },
    el("h2", {}, "Log in"),
    note("With an API key of role reader, operator or admin. The key mints a token for an hour and is not kept. Or open the link that `dhsched console` prints."),
    el("label", { for: "key" }, "API key"),
    key,
    refusal,
    el(".row.end", {}, el("button.primary", { type: "submit" }, "Log in")),
  );
  fill($("main"), form);
  key.focus();
}

function start() {
  session?.abort();
  session = new AbortController();
  const sees = may("fleet:read");
  for (const id of ["nav", "truth"]) $(id).hidden = !sees;
  $("find").hidden = false;
  $("leave").hidden = Boolean(claims().open);
  begin(session.signal, (text, tone) => {
    $("feed").dataset.tone = tone;
    write($("feed"), text);
  });
  who();
  show();
}

function who() {
  const mine = claims();
  const left = mine.exp ? mine.exp - Date.now() / 1000 : Infinity;
  const ending = left < ENDING_S ? `, ends in ${span(1000 * Math.max(0, left))}` : "";
  write($("who"), mine.open ? "" : `${mine.role}${mine.tenant && mine.tenant !== "default" ? ` of ${mine.tenant}` : ""}${ending}`);
}

addEventListener("unauthorized", () => {
  if (!session) return;
  keepToken("");
  login("The session is over. Log in again.");
});

$("leave").addEventListener("click", () => {
  keepToken("");
  login();
});

// -- the line of truth

const figures = new Map();

function truth() {
  const now = fleet.summary;
  if (!now) return;
  const { lives, slots, store, safety, brake } = now;
  const checked = safety.checked_ms_ago === null ? "not checked yet" : `checked ${span(safety.checked_ms_ago + Date.now() - fleet.readAt)} ago`;
  const found = safety.dual_owners + safety.overshoots + safety.drift;
  const waits = lives.waiting + lives.creates_waiting;
  const home = store.home.split(/[@ ]/)[0].slice(0, 12);
  figure("open", "lives open", number(lives.open), "");
  figure("waiting", "waiting", number(waits), waits ? "warn" : "", `${plural(lives.waiting, "live")} in a queue for a slot, ${plural(lives.creates_waiting, "create")} waiting`);
  figure("recovering", "recovering", number(lives.recovering), lives.recovering ? "bad" : "", "lives on lost Workers");
  figure("free", "free slots", `${number(slots.free)} of ${number(slots.capacity)}`, slots.free ? "" : "bad");
  figure("brake", "brake", brake.on ? `on, ${number(brake.silent)} silent` : "off", brake.on ? "bad" : "", brake.on ? `said by ${brake.by}` : "Workers that fall silent are called lost in time");
  figure("store", `store, home ${home}`, `${store.answered_ms.toFixed(1)} ms, ${bytes(store.behind_bytes)} behind`, store.unsettled || store.lost_calls ? "bad" : "", `term ${store.term}, ${plural(store.replicas, "replica")}, ${number(store.lost_calls)} answered calls known to be lost${store.unsettled ? `; ${store.unsettled}` : ""}`);
  figure("safety", checked, `${safety.dual_owners} ${safety.overshoots} ${safety.drift}`, found ? "bad" : safety.checked_ms_ago === null ? "" : "good", `two owners, over capacity, drift: over ${plural(safety.replicas, "replica")}, ${plural(safety.workers, "check")} of Workers`);
  write($("cell"), now.cells ? `dhsched, ${plural(now.cells.length, "cell")}` : now.cell === "main" ? "dhsched" : `dhsched ${now.cell}`);
}

function figure(name, label, value, tone, title = "") {
  let made = figures.get(name);
  if (!made) {
    made = { box: el(".figure", { dataset: { name } }), value: el("b"), label: el("span") };
    made.box.append(made.value, made.label);
    figures.set(name, made);
    $("truth").append(made.box);
  }
  write(made.value, value);
  write(made.label, label);
  made.box.dataset.tone = tone;
  made.box.title = title;
}

setInterval(() => {
  if (session && !document.hidden) {
    truth();
    who();
  }
}, 1000);
onChange((told) => told.summary && truth());

// -- the keyboard, and the way to a live or a Worker

$("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = $("wanted").value.trim();
  if (!wanted) return;
  const worker = fleet.workers.has(wanted) ? wanted : [...fleet.workers.keys()].find((each) => each.split("#")[0] === wanted);
  const [tenant, live] = wanted.includes("/") ? wanted.split("/") : [claims().tenant || "default", wanted];
  location.hash = worker ? `#/worker/${encodeURIComponent(worker)}` : `#/live/${encodeURIComponent(tenant)}/${encodeURIComponent(live)}`;
  $("wanted").value = "";
  $("wanted").blur();
});

const KEYS = [
  ["/", "go to a live or a Worker"],
  ["f", "Fleet"],
  ["r", "Recoveries"],
  ["Arrows", "move over the Workers of the map; Enter opens one"],
  ["?", "these keys"],
];

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !session) return;
  if (event.target.closest("input, textarea, select, dialog[open]")) return;
  if (event.key === "/") {
    event.preventDefault();
    $("wanted").focus();
  } else if (event.key === "f") location.hash = "#/fleet";
  else if (event.key === "r") location.hash = "#/recoveries";
  else if (event.key === "?") ask("Keys", KEYS.map(([key, does]) => el("p", {}, el("kbd", {}, key), ` ${does}`)), "Close", { danger: false });
});

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) {
    takeToken();
    start();
  } else if (session) show();
});

addEventListener("error", (event) => say(`This page has a defect: ${event.message}`, "bad"));

// -- begin: where access is open, no login is needed

takeToken();
try {
  await get("/v1/summary");
  start();
} catch (error) {
  if (error.status !== 401) start();
  else {
    const had = !claims().open;
    keepToken("");
    login(had ? "The session is over. Log in again." : "");
  }
}
