// Every Worker at a glance: a tile with its slots for each, or for more than TILES_MAX a map with a cell for each.

import { el, plural, TONES, workerHref, write } from "/console/dom.js";

const TILES_MAX = 160; // More Workers than this are drawn as a map.
const SQUARES_MAX = 24; // A tile with more slots shows a bar.
const CELL = 18; // Side of a cell of the map, in CSS pixels; less where there are many.
const CELL_MIN = 6;
const LABEL = 24; // Height of the name of a Pool, above its cells.
const HIGH_MAX = 460; // Cells become smaller until the map is at most this high.
export const STATES = ["running", "starting", "reserved", "departing", "vacant"];

export class WorkerMap {
  // `onSelect(worker)` is called when the reader chooses a Worker; an empty text when none is chosen.
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.box = el(".map");
    this.tip = el("p.note.tip", { role: "status" }, "");
    this.legend = el(".legend", { "aria-hidden": "true" });
    this.rows = [];
    this.selected = "";
    this.tiles = new Map();
    this.canvas = null;
    this.sizes = new ResizeObserver(() => this.canvas && this.drawMap());
    this.sizes.observe(this.box);
  }

  stop() {
    this.sizes.disconnect();
  }

  // Draw these Workers, in this order. `changed` are those whose row differs; without it, all may.
  draw(rows, changed) {
    const map = rows.length > TILES_MAX;
    this.rows = rows;
    if (map) this.drawMap(changed);
    else this.drawTiles(changed);
  }

  select(worker) {
    const before = this.selected;
    this.selected = worker;
    if (this.canvas) this.drawMap();
    for (const name of [before, worker]) this.tiles.get(name)?.box.toggleAttribute("data-selected", name === worker && Boolean(name));
  }

  // -- tiles

  drawTiles(changed) {
    if (this.canvas || !changed) {
      this.canvas = null;
      this.tiles.clear();
      this.box.className = "map tiles";
      this.legend.replaceChildren(...[...STATES, "free"].map((state) => el("span", {}, el("i", { dataset: { state } }), state)));
      this.box.replaceChildren(...this.rows.map((row) => this.tile(row)));
      return;
    }
    for (const row of this.rows) if (changed.has(row.worker)) this.fillTile(row);
  }

  tile(row) {
    const box = el(
      "a.tile",
      {
        href: workerHref(row.worker),
        onclick: (event) => {
          if (this.selected === row.worker || event.ctrlKey || event.metaKey) return; // A second click follows the link.
          event.preventDefault();
          this.onSelect(row.worker);
        },
      },
      el(".tilehead", {}, el("b"), el("span")),
      el(".slots", { "aria-hidden": "true" }),
      el("small"),
    );
    this.tiles.set(row.worker, { box, drawn: "" });
    this.fillTile(row);
    box.toggleAttribute("data-selected", row.worker === this.selected);
    return box;
  }

  fillTile(row) {
    const tile = this.tiles.get(row.worker);
    const drawn = JSON.stringify(row);
    if (!tile || tile.drawn === drawn) return;
    tile.drawn = drawn;
    const [head, slots, foot] = tile.box.children;
    write(head.firstChild, row.worker);
    write(head.lastChild, row.status === "ready" ? "" : row.status);
    tile.box.dataset.tone = TONES[row.status] || "soft";
    tile.box.title = describe(row);
    slots.replaceChildren(...squares(row));
    write(foot, `${row.load}/${row.capacity} in ${row.pool}`);
  }

  // -- the map

  drawMap(changed) {
    if (!this.canvas) {
      this.tiles.clear();
      this.box.className = "map";
      this.layout = null;
      const keys = [["heat", "empty to full"], ["full", "95 % or more"], ["starting", "takes nothing new, or something starts"], ["vacant", "lost, or without a runtime"]];
      this.legend.replaceChildren(...keys.map(([state, text]) => el("span", {}, el("i", { dataset: { state } }), text)));
      this.canvas = el("canvas.heat", { tabindex: "0", role: "listbox", "aria-label": "Workers: arrows move, Enter opens one" });
      this.canvas.addEventListener("mousemove", (event) => this.hover(this.at(event)));
      this.canvas.addEventListener("mouseleave", () => this.hover(-1));
      this.canvas.addEventListener("click", (event) => this.choose(this.at(event)));
      this.canvas.addEventListener("dblclick", (event) => this.open(this.at(event)));
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      this.box.replaceChildren(this.canvas, this.tip);
      changed = undefined;
    }
    const wide = this.box.clientWidth;
    if (!wide) return;
    const layout = fit(this.rows, wide);
    const scale = devicePixelRatio || 1;
    if (layout.name !== this.layout?.name) {
      this.canvas.width = Math.round(wide * scale);
      this.canvas.height = Math.round(layout.high * scale);
      this.canvas.style.height = `${layout.high}px`;
      changed = undefined;
    }
    this.layout = layout;
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const colours = palette(this.box);
    if (!changed) {
      context.clearRect(0, 0, wide, layout.high);
      context.fillStyle = colours.soft;
      context.font = `600 12px ${colours.font}`;
      for (const group of layout.groups) context.fillText(`${group.pool}  ${group.count}`, 0, group.top - 6, wide);
    }
    for (const group of layout.groups) {
      for (let n = group.first; n < group.first + group.count; n++) {
        if (!changed || changed.has(this.rows[n].worker)) this.cell(context, colours, this.rows[n], n, group);
      }
    }
  }

  cell(context, colours, row, n, group) {
    const { side, columns } = this.layout;
    const x = ((n - group.first) % columns) * side;
    const y = group.top + Math.floor((n - group.first) / columns) * side;
    const inner = side - (side > 10 ? 2 : 1);
    const share = row.capacity ? Math.min(1, row.load / row.capacity) : 1;
    context.clearRect(x, y, side, side);
    context.fillStyle = colours.empty;
    context.fillRect(x, y, inner, inner);
    const out = row.status !== "ready";
    context.fillStyle = out ? colours[TONES[row.status]] || colours.soft : share >= 0.95 ? colours.full : colours.accent;
    context.globalAlpha = out ? 1 : share >= 0.95 ? 1 : 0.9 * share * share;
    context.fillRect(x, y, inner, inner);
    context.globalAlpha = 1;
    if (row.starting || row.slots.vacant) {
      context.fillStyle = row.slots.vacant ? colours.bad : colours.warn;
      context.fillRect(x, y, Math.max(2, inner / 3), Math.max(2, inner / 3));
    }
    if (row.worker === this.selected) {
      context.strokeStyle = colours.text;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, inner - 2, inner - 2);
    }
  }

  index(worker) {
    return this.rows.findIndex((row) => row.worker === worker);
  }

  at(event) {
    const { side, columns, groups } = this.layout;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / side);
    const y = event.clientY - box.top;
    const group = groups.findLast((each) => y >= each.top);
    const n = group && column < columns ? Math.floor((y - group.top) / side) * columns + column : -1;
    return group && n >= 0 && n < group.count ? group.first + n : -1;
  }

  hover(n) {
    const row = this.rows[n] || this.rows[this.index(this.selected)];
    write(this.tip, row ? describe(row) : "");
  }

  choose(n) {
    this.onSelect(this.rows[n]?.worker || "");
    this.hover(n);
  }

  open(n) {
    if (this.rows[n]) location.hash = workerHref(this.rows[n].worker);
  }

  key(event) {
    const { columns } = this.layout;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const n = this.index(this.selected);
    if (event.key in steps) {
      event.preventDefault();
      this.choose(Math.max(0, Math.min(this.rows.length - 1, n < 0 ? 0 : n + steps[event.key])));
    } else if (event.key === "Enter") this.open(n);
    else if (event.key === "Escape") this.choose(-1);
  }
}

export function describe(row) {
  const states = STATES.filter((state) => row.slots[state]).map((state) => `${row.slots[state]} ${state}`);
  return `${row.worker} in ${row.pool}, ${row.status}: ${row.load} of ${plural(row.capacity, "slot")}${states.length ? ` (${states.join(", ")})` : ""}`;
}

// Where the cells of each Pool begin, for cells as large as the height allows. The rows are sorted by Pool.
function fit(rows, wide) {
  const pools = [];
  rows.forEach((row, n) => {
    if (pools.at(-1)?.pool !== row.pool) pools.push({ pool: row.pool, first: n, count: 0 });
    pools.at(-1).count += 1;
  });
  for (let side = CELL; ; side -= 1) {
    const columns = Math.max(1, Math.floor(wide / side));
    let top = 0;
    const groups = pools.map((each) => {
      const group = { ...each, top: top + LABEL };
      top = group.top + Math.ceil(each.count / columns) * side;
      return group;
    });
    const name = `${wide} ${side} ${groups.map((each) => `${each.pool} ${each.count}`).join(" ")}`;
    if (side <= CELL_MIN || top <= HIGH_MAX) return { side, columns, groups, high: top, name };
  }
}

function squares(row) {
  const states = STATES.flatMap((state) => Array(row.slots[state] || 0).fill(state));
  if (row.capacity <= SQUARES_MAX) {
    const free = Math.max(0, row.capacity - states.length);
    return [...states, ...Array(free).fill("free")].map((state) => el("i", { dataset: { state } }));
  }
  return [
    el(".bar", {}, ...STATES.filter((state) => row.slots[state]).map((state) => el("i", { dataset: { state }, style: { width: `${(100 * row.slots[state]) / row.capacity}%` } }))),
  ];
}

let colours = null;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (colours = null));

function palette(box) {
  if (colours) return colours;
  const style = getComputedStyle(box);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  colours = { empty: named("empty"), accent: named("accent"), full: named("full"), good: named("accent"), warn: named("warn"), bad: named("bad"), soft: named("soft"), text: named("text"), font: style.fontFamily };
  return colours;
}

