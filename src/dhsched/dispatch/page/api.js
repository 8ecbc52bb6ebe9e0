// Calls to the API with the reader's token, and streams of server-sent events that are opened again when they break.
// The token comes from a link (behind the #, which a browser sends to no server) or is minted with a key, which is not kept.

const KEPT = "console token";
const SILENCE_MS = 30_000; // A stream without a byte for this long is broken: servers send at least every ten seconds.
const AGAIN_MS = [200, 500, 1000, 2000, 5000];
let token = "";

export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail || `the answer was ${status}`);
    this.status = status;
    this.code = problem.code || "";
  }
}

// Take the token of the address, if it has one; else the one that this tab has kept.
export function takeToken() {
  const given = /^#token=([\w.-]{1,2048})$/.exec(location.hash);
  if (given) {
    keepToken(given[1]);
    history.replaceState(null, "", `${location.pathname}#/fleet`);
    return;
  }
  try {
    token = sessionStorage.getItem(KEPT) || "";
  } catch {
    token = ""; // A browser may forbid a page to keep anything.
  }
}

export function keepToken(text) {
  token = text;
  try {
    if (text) sessionStorage.setItem(KEPT, text);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Then it lasts until the page is loaded again.
  }
}

// What the token says of itself. The server decides; this only chooses which buttons are shown.
export function claims() {
  if (!token) return { role: "admin", scope: "admin", open: true };
  try {
    return JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));
  } catch {
    return { role: "unknown", scope: "" };
  }
}

export function may(...scopes) {
  const mine = (claims().scope || "").split(" ");
  return mine.includes("admin") || scopes.some((scope) => mine.includes(scope));
}

function headers(tenant, more = {}) {
  return { ...more, ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(tenant ? { "X-Tenant": tenant } : {}) };
}

// Call an endpoint: call("POST", "/v1/workers/w/drain", { body, tenant }). Returns its document.
export async function call(method, path, { body, tenant, signal } = {}) {
  const sent = headers(tenant, body === undefined ? {} : { "Content-Type": "application/json" });
  const limit = AbortSignal.timeout(30_000);
  const response = await fetch(path, {
    method,
    headers: sent,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  });
  const text = await response.text();
  const document_ = text ? JSON.parse(text) : null;
  if (!response.ok) {
    if (response.status === 401) dispatchEvent(new Event("unauthorized"));
    throw new Problem(response.status, document_ || {});
  }
  return document_;
}

export const get = (path, options) => call("GET", path, options);
export const quoted = (strings, ...values) => String.raw({ raw: strings }, ...values.map(encodeURIComponent));

// Mint a token with an API key. The key is used once and forgotten.
export async function logIn(key) {
  const response = await fetch("/v1/tokens", {
    method: "POST",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify({ ttl_s: 3600 }),
    signal: AbortSignal.timeout(15_000),
  });
  const made = await response.json();
  if (!response.ok) throw new Problem(response.status, made);
  keepToken(made.token);
}

// Follow a stream until `signal` aborts. `on.event(name, data, first)` is called for each event; `first` is true for what
// came with the first bytes of a connection, which may be older than the connection. `on.state(text, tone)` says how the
// connection is. A stream that broke goes on after the last id.
export async function follow(path, { tenant, signal, on, after = "" }) {
  let last = after;
  let tries = 0;
  while (!signal.aborted) {
    const broken = new AbortController();
    const stop = () => broken.abort();
    signal.addEventListener("abort", stop);
    let alive = setTimeout(stop, SILENCE_MS);
    try {
      const sent = headers(tenant, { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) });
      const response = await fetch(path, { headers: sent, signal: broken.signal, cache: "no-store" });
      if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
      on.state?.("live", "good");
      for await (const line of lines(response.body, () => {
        clearTimeout(alive);
        alive = setTimeout(stop, SILENCE_MS);
      })) {
        if (line.id) last = line.id;
        tries = 0;
        on.event(line.event, JSON.parse(line.data), line.first);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 500) {
        if (error.status === 401) dispatchEvent(new Event("unauthorized"));
        on.state?.(error.message, "bad");
        return;
      }
    } finally {
      clearTimeout(alive);
      signal.removeEventListener("abort", stop);
    }
    if (signal.aborted) return;
    on.state?.("connecting", "warn");
    await new Promise((done) => setTimeout(done, AGAIN_MS[Math.min(tries++, AGAIN_MS.length - 1)]));
  }
}

// The events of a body: id, event and data of each, and whether it came with the first bytes.
async function* lines(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { id: "", event: "", data: "" };
  for (let first = true; ; first = false) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    const found = (rest + value).split("\n");
    rest = found.pop();
    for (const line of found) {
      if (!line) {
        if (event.data) yield { ...event, first };
        event = { id: "", event: "", data: "" };
        continue;
      }
      const at = line.indexOf(": ");
      const key = line.slice(0, at);
      if (key in event) event[key] = line.slice(at + 2);
    }
  }
}
