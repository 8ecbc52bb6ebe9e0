// The viewer token. A link has it behind the #, which a browser sends to no server. It is kept for this tab only, and
// taken out of the address, so that an address that is passed on does not pass on the token.

let token = "";

// Take the token of the address, if it has one; else the one that this tab has kept. Return whether it is a new one.
export function takeToken(live) {
  const kept = `viewer token of ${live}`;
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) sessionStorage.setItem(kept, given);
    token = given || token || sessionStorage.getItem(kept) || "";
  } catch {
    token = given || token; // A browser may forbid an embedded page to keep anything.
  }
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return Boolean(given);
}

// The headers of a call to the room.
export function shown(headers = {}) {
  return token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
}
