// The viewer token. A link has it behind the #, which a browser sends to no server. It is kept for this tab only, and
// taken out of the address, so that an address that is passed on does not pass on the token.

const KEPT = "viewer token of ";
let token = "";

// Return the token of the address, if it has one; else the one that this tab has kept. Without one it is empty.
export function takeToken(live) {
  const kept = KEPT + live;
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) sessionStorage.setItem(kept, given);
    token = given || token || sessionStorage.getItem(kept) || "";
  } catch {
    token = given || token; // A browser may forbid an embedded page to keep anything.
  }
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

// The lives whose token this tab has kept.
export function livesWithToken() {
  try {
    return Object.keys(sessionStorage).filter((key) => key.startsWith(KEPT)).map((key) => key.slice(KEPT.length));
  } catch {
    return [];
  }
}
