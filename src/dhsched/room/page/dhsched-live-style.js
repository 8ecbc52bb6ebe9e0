// The style of <dhsched-live>. It is inside of the element alone; a page styles its parts with ::part(frame), ::part(video),
// ::part(veil), ::part(badge), ::part(sound) and ::part(caption).

export const STYLE = `
:host { display: block; position: relative; }
:host([hidden]) { display: none; }
* { box-sizing: border-box; }
p { margin: 0; }
.frame {
  position: relative; aspect-ratio: var(--dhsched-aspect-ratio, 1); max-height: var(--dhsched-frame-max-height, none);
  width: 100%; margin-inline: auto; overflow: hidden; background: var(--dhsched-stage, #11141c);
  border-radius: var(--dhsched-radius, 14px);
}
video { width: 100%; height: 100%; object-fit: contain; display: block; }
.veil {
  position: absolute; top: 52px; left: 14px; right: 14px; padding: 9px 14px; border-radius: 10px; text-align: center;
  color: #fff; background: rgb(15 18 26 / .82); border: 1px solid rgb(255 255 255 / .2); transition: opacity .2s;
}
.veil[hidden] { display: block; opacity: 0; pointer-events: none; }
.badge {
  position: absolute; top: 14px; right: 14px; padding: 3px 12px; border-radius: 999px; font-size: .82rem;
  font-weight: 600; color: #fff; background: #1f8f55; font-variant-numeric: tabular-nums;
}
.badge[data-air="off"] { background: #c92a2a; }
/* Under the picture, with its place kept free: nothing moves when words come. Of a long sentence the end is seen. */
.caption {
  display: flex; flex-direction: column-reverse; height: 2.8em; margin-top: 8px; padding: 0 4px; overflow: hidden;
  text-align: center; font-size: 1.05rem; line-height: 1.4; overflow-wrap: anywhere;
}
.caption::before { content: ""; flex: 1; }
.caption[hidden] { display: flex; visibility: hidden; }
.sound {
  position: absolute; left: 14px; bottom: 14px; display: inline-flex; align-items: center; gap: 8px;
  font: inherit; font-weight: 550; padding: 9px 16px; min-height: 44px; border-radius: 10px; cursor: pointer;
  color: #fff; background: rgb(15 18 26 / .78); border: 1px solid rgb(255 255 255 / .25);
}
.sound:hover { filter: brightness(1.08); }
.sound:focus-visible { outline: 3px solid #6f8cff; outline-offset: 2px; }
.sound .on, .sound[aria-pressed="true"] .off { display: none; }
.sound[aria-pressed="true"] .on { display: inline; }
.stage[data-over] .sound, .stage[data-over] .caption { display: none; }
.stage[data-over] video { opacity: .25; }
:host([fill]) .stage, :host([fill]) .frame { height: 100%; }
:host([fill]) .frame { aspect-ratio: auto; max-height: none; border-radius: 0; }
:host([fill]) .caption {
  position: absolute; left: 14px; right: 14px; bottom: 66px; height: auto; width: fit-content; max-height: 40%;
  margin-inline: auto; padding: 6px 12px; border-radius: 8px; color: #fff; background: rgb(15 18 26 / .78);
}
@media (prefers-reduced-motion: reduce) { .veil { transition: none; } }
`;
