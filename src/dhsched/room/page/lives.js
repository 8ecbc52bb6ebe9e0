// The lives that this viewer may watch: those whose link was opened in this tab and, where access is open, all that this
// room shows. Which lives there are is nobody's business who has no token for them.

import { livesWithToken } from "/page/token.js";

const list = document.getElementById("lives");
const none = document.getElementById("none");

async function shownHere() {
  try {
    const response = await fetch("/v1/lives", { signal: AbortSignal.timeout(5000) });
    return response.ok ? (await response.json()).lives : [];
  } catch {
    return [];
  }
}

const found = [...new Set([...livesWithToken(), ...(await shownHere())])].sort();
for (const live of found) {
  const link = document.createElement("a");
  link.href = `/live/${encodeURIComponent(live)}`;
  link.textContent = live;
  const row = document.createElement("li");
  row.append(link);
  list.append(row);
}
none.textContent = found.length ? "" : "Nothing to watch here. Open the link to a live that you were given.";
