// Joins the tokens of a language model into sentences. Pure.

const SENTENCE_CHARS_MAX = 400; // A longer sentence is cut behind its last white space, else where it is.
const END = /[.!?…]["'”’)\]]*\s+|[。！？][”’）」』]*\s*|\n\s*\n/;

/** Takes tokens, and gives sentences: together they are the same text, with every white space. */
export class Sentences {
  #rest = "";

  /** Take one token; return the sentences that are whole with it. One ends where the next begins. */
  add(token: string): string[] {
    this.#rest += token;
    const found: string[] = [];
    for (let end = this.#end(); end > 0; end = this.#end()) {
      found.push(this.#rest.slice(0, end));
      this.#rest = this.#rest.slice(end);
    }
    return found;
  }

  /** Return what is left after the last token. */
  rest(): string {
    const rest = this.#rest;
    this.#rest = "";
    return rest;
  }

  #end(): number {
    // White space may go on with the next token, and a sentence takes all that follows it.
    const match = END.exec(this.#rest);
    if (match !== null && match.index + match[0].length < this.#rest.length) return match.index + match[0].length;
    if (this.#rest.length <= SENTENCE_CHARS_MAX) return 0;
    const space = this.#rest.slice(0, SENTENCE_CHARS_MAX).lastIndexOf(" ");
    return space > 0 ? space + 1 : SENTENCE_CHARS_MAX;
  }
}
