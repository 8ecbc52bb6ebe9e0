// The picture of a live, where there is a room: the room's own page in a frame, with a viewer token that this reader mints.
// The room decides who may embed its page (its setting frame_ancestors); a link to it is there in any case.

import { call, get, may, quoted } from "/console/api.js";
import { card, el, fill, say } from "/console/dom.js";

const TTL_S = 600; // Whoever watches longer presses the button again.

export function pictureOf(tenant, live, signal) {
  const inner = el(".picture");
  const box = card("Picture", { hidden: true }, inner);
  let room = "";
  let state = "";
  let frame = null;
  const path = quoted`/live/${live}`;

  get("/console/room.json", { signal }).then((found) => {
    room = found.url;
    redraw();
  }, () => {}); // A page that is left meanwhile; the live is shown without a picture.

  // Draw again only if something has changed: a frame that is moved loads anew.
  function draw(shown) {
    if (shown.state === state) return;
    state = shown.state;
    redraw();
  }

  function redraw() {
    box.hidden = !room || !state || state === "ended";
    if (box.hidden) {
      frame = null;
      fill(inner);
    } else if (!frame) {
      fill(inner, may("lives:write") ? el("button", { type: "button", id: "watch", onclick: watch }, "Watch") : el("p.note", {}, "Your role may not mint viewer tokens."), link(`${room}${path}`));
    }
  }

  const link = (href) => el("p.note", {}, el("a", { href, target: "_blank", rel: "noopener noreferrer" }, "Open the room"));

  async function watch() {
    try {
      const minted = await call("POST", quoted`/v1/lives/${live}/viewer-tokens`, { tenant, signal, body: { grants: ["watch"], ttl_s: TTL_S } });
      const token = `#token=${encodeURIComponent(minted.token)}`;
      frame = el("iframe", { src: `${room}${path}?embed${token}`, title: `Picture of ${live}`, allow: "autoplay", sandbox: "allow-scripts allow-same-origin" });
      const hide = el("button.small", { type: "button", onclick: stop }, "Stop watching");
      fill(inner, frame, el(".row", {}, hide, link(`${room}${path}${token}`)), el("p.note", {}, "Nothing is seen? The room must name this page's origin in frame_ancestors."));
    } catch (error) {
      if (!signal.aborted) say(error.message, "bad");
    }
  }

  function stop() {
    frame = null;
    redraw();
  }

  return { box, draw };
}
