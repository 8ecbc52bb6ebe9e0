// Elements, durations and questions. Every text from outside goes through textContent: there is no way here from a text to
// HTML, so a live's id, a label or a crash reason can only ever be read.

// Make an element: el("a.class", { href, onclick, dataset: {} }, ...children). Children are elements or texts.
export function el(kind, given = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "dataset") Object.assign(made.dataset, value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) made.style.setProperty(key, each);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false).map(node));
  return made;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(Boolean).map(node));
  return parent;
}

// Write a text only if it differs: what stays the same costs no layout.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function card(title, given, ...children) {
  const { aside, ...rest } = given || {};
  return el("section.card", rest, el(".head", {}, el("h2", {}, title), aside), ...children);
}

// A text with commands in backticks.
export const note = (text) => el("p.note", {}, ...text.split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part)));

// On a small screen each row is a block, in which every cell has its column's name.
export function table(columns, rows, empty) {
  if (!rows.length) return el("p.note", {}, empty || "None.");
  for (const each of rows) columns.forEach((name, n) => each.cells[n] && (each.cells[n].dataset.column = name));
  const head = el("tr", {}, ...columns.map((name) => el("th", { scope: "col" }, name)));
  return el(".scroll", {}, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}

export const row = (...cells) => el("tr", {}, ...cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : el("td", {}, cell))));

export const workerHref = (worker) => `#/worker/${encodeURIComponent(worker)}`;
export const liveHref = (tenant, live) => `#/live/${encodeURIComponent(tenant)}/${encodeURIComponent(live)}`;
export const workerLink = (worker) => (worker ? el("a", { href: workerHref(worker) }, worker) : "");
export const liveLink = (tenant, live) => (live ? el("a", { href: liveHref(tenant, live) }, live) : "");

export const pill = (text, tone) => el("span.pill", { dataset: { tone: tone || "soft" } }, text);

export const TONES = { ready: "good", open: "good", running: "good", cordoned: "warn", draining: "warn", closing: "warn", new: "soft", lost: "bad", gone: "bad", ended: "soft" };

const thousands = new Intl.NumberFormat("en");
export const number = (n) => thousands.format(n);
export const plural = (n, one, many) => `${number(n)} ${n === 1 ? one : many || `${one}s`}`;

export function span(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / 86_400_000)} d ${Math.round((ms % 86_400_000) / 3_600_000)} h`;
}

export const bytes = (n) => (n < 1024 ? `${n} B` : n < 1_048_576 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1_048_576).toFixed(1)} MiB`);
export const clock = (ms) => (ms ? new Date(ms).toLocaleTimeString([], { hour12: false }) : "");
export const percent = (share) => `${Math.round(100 * share)} %`;

// Ask before something is done that cannot be undone. What will happen stands in the dialog; the answer is true or false.
export function ask(title, lines, does, { danger = true, fields = [] } = {}) {
  const dialog = document.getElementById("dialog");
  return new Promise((answer) => {
    const yes = el(`button.${danger ? "danger" : "primary"}`, { type: "submit", value: "yes" }, does);
    const no = el("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel");
    const form = el("form", { method: "dialog" }, el("h2", {}, title), ...lines.map((line) => (line instanceof Node ? line : el("p", {}, line))), ...fields, el(".row.end", {}, no, yes));
    fill(dialog, form);
    dialog.returnValue = "";
    dialog.onclose = () => answer(dialog.returnValue === "yes");
    dialog.showModal();
    no.focus();
  });
}

export function say(text, tone = "good") {
  const toasts = document.getElementById("toasts");
  const toast = el(".toast", { dataset: { tone } }, text);
  toasts.append(toast);
  while (toasts.children.length > 4) toasts.firstChild.remove();
  setTimeout(() => toast.remove(), tone === "bad" ? 10_000 : 4000);
}
