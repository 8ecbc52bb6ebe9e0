// What the live was told: the items of this page with their text, those of others without, and which one it says now.
// The room knows the numbers of items and the last one that was acked. It keeps no text of them, so a page has only its own.

const ROWS_MAX = 50;

export class Transcript {
  constructor(list, card) {
    this.list = list;
    this.card = card;
    this.items = new Map(); // By number: { who, text }
    this.acked = 0;
  }

  // An item of this page was accepted.
  told(seq, text, over = false) {
    if (seq) this.items.set(seq, { who: "you", text, over });
    this.draw();
  }

  isMine(seq) {
    return this.items.has(seq) && this.items.get(seq).who === "you";
  }

  show(state) {
    for (const said of state.said) {
      if (said.kind === "interrupt") for (const seq of this.items.keys()) if (seq < said.seq) this.items.get(seq).over = true;
      if (this.items.has(said.seq)) continue;
      const text = said.kind === "interrupt" ? "(interrupted)" : "(only the sender sees the text)";
      this.items.set(said.seq, { who: said.identity || "somebody", text, over: said.kind === "interrupt" });
    }
    if (state.owner) this.acked = state.owner.acked;
    this.draw();
  }

  over() {
    this.acked = Infinity;
    this.draw();
  }

  draw() {
    const seqs = [...this.items.keys()].sort((a, b) => a - b).slice(-ROWS_MAX);
    for (const seq of this.items.keys()) if (seq < seqs[0]) this.items.delete(seq);
    const now = seqs.find((seq) => seq > this.acked && !this.items.get(seq).over);
    this.list.replaceChildren(...seqs.map((seq) => this.row(seq, seq === now)));
    this.card.hidden = !seqs.length;
    this.list.scrollTop = this.list.scrollHeight;
  }

  row(seq, now) {
    const { who, text, over } = this.items.get(seq);
    const row = document.createElement("li");
    const words = document.createElement("span");
    const at = document.createElement("small");
    words.textContent = `${who}: ${text}`;
    at.textContent = now ? "now" : over || seq <= this.acked ? "done" : "waiting";
    row.dataset.at = at.textContent;
    row.append(words, at);
    return row;
  }
}
