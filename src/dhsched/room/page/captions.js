// The words that are heard, as they are heard: server-sent events of this viewer's session at the room. The room sends
// only the captions of the generation on air, so what comes here is shown as it is.

const KEPT_MS = 4000; // A caption without another word for this long is taken away.
const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 5000;
const LINE_CHARS_MAX = 65536; // A line of the stream that is longer ends it.

/**
 * The sentence that is being spoken, as far as it was heard. `cut`: an interrupt stopped the voice here.
 * @typedef {{ epoch: number, seq: number, text: string, cut: boolean }} Caption
 */

export class Captions {
  /**
   * @param {import("./room-live.js").RoomLive} room
   * @param {HTMLElement} element
   * @param {(caption: Caption) => void} onCaption
   */
  constructor(room, element, onCaption) {
    this.room = room;
    this.element = element;
    this.onCaption = onCaption;
    /** @type {Caption | null} */
    this.last = null;
    /** @type {AbortController | null} */
    this.reading = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.taking = undefined;
  }

  /**
   * Follow the captions of a session until `stop`. A stream that was lost is asked for again.
   * @param {string | null} session
   */
  async follow(session) {
    this.stop();
    const reading = (this.reading = new AbortController());
    for (let wait = RETRY_FIRST_MS; session && this.reading === reading; wait = Math.min(wait * 2, RETRY_MAX_MS)) {
      try {
        const response = await fetch(`${session}/captions`, { headers: this.room.headers(), signal: reading.signal });
        if (response.status >= 400 && response.status < 500) return; // The session is over; another one follows.
        if (response.ok && response.body) {
          wait = RETRY_FIRST_MS;
          await this.read(response.body.getReader());
        }
      } catch {
        // The room is away; the connection says so.
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  stop() {
    if (this.reading) this.reading.abort();
    this.reading = null;
  }

  /** @param {ReadableStreamDefaultReader<Uint8Array>} reader */
  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > LINE_CHARS_MAX) return reader.cancel();
      for (const line of lines) if (line.startsWith("data: ")) this.show(JSON.parse(line.slice(6)));
    }
  }

  /**
   * Words are appended as they come: a screen reader then says the new ones, and not the sentence again and again.
   * @param {Caption} caption
   */
  show(caption) {
    const last = this.last;
    const same = last !== null && last.epoch === caption.epoch && last.seq === caption.seq;
    const before = same && caption.text.startsWith(last.text) ? last : null;
    if (!before) this.element.replaceChildren();
    const more = caption.text.slice(before ? before.text.length : 0);
    if (more) this.element.append(more);
    if (caption.cut && !before?.cut) this.element.append("\u2014");
    this.element.hidden = !caption.text;
    this.last = caption;
    this.onCaption(caption);
    clearTimeout(this.taking);
    this.taking = setTimeout(() => this.clear(), KEPT_MS);
  }

  clear() {
    clearTimeout(this.taking);
    this.element.hidden = true;
    this.element.replaceChildren();
    this.last = null;
  }
}
