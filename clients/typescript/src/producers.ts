// The names under which a client's streams number their items, kept from one stream to the next: a live remembers few
// producers, each for ten minutes at least, and an app may open a stream for every turn of a conversation.

import { newId } from "./calls.js";

const LIVES_MAX = 10_000; // Past this the live that was used longest ago is forgotten; its next stream takes a new name.
const KEPT_MAX = 8; // Per live; further names are dropped, because the store remembers no more.

/** A producer's name, and the last number that was used under it. */
export interface Producer {
  readonly name: string;
  n: number;
}

export function newProducer(): Producer {
  return { name: `p-${newId(6)}`, n: 0 };
}

export class Producers {
  readonly #kept = new Map<string, Producer[]>();

  /** Return a producer that no other stream uses now. */
  take(live: string): Producer {
    return this.#kept.get(live)?.pop() ?? newProducer();
  }

  /** Keep a producer for the next stream: all its items are stored, and none is in flight. */
  leave(live: string, producer: Producer): void {
    const kept = this.#kept.get(live) ?? [];
    this.#kept.delete(live); // The order of the map is the order of use.
    this.#kept.set(live, kept);
    if (kept.length < KEPT_MAX) kept.push(producer);
    const oldest = this.#kept.keys().next();
    if (this.#kept.size > LIVES_MAX && !oldest.done) this.#kept.delete(oldest.value);
  }
}
