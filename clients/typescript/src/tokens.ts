// Tokens of an API key at one server: minted when they are needed, and renewed before they end.

import { NotMinted, refusalOf, wordsOf } from "./errors.js";
import type { MintedToken } from "./models.js";

const MINT_MS = 5_000; // A replica that mints no token for this long is left for the next.
const RENEW = 0.75; // Share of a token's life after which a new token is minted.

export type Headers = Readonly<Record<string, string>>;
export type Fetch = typeof globalThis.fetch;

export function bearer(token: string): Headers {
  return { Authorization: `Bearer ${token}` };
}

export class Minter {
  #shown: Headers = {};
  #until = 0; // Time from which the next call mints a new token.

  constructor(
    private readonly fetch: Fetch,
    private readonly url: string,
    private readonly key: string,
  ) {}

  /** Mint a token before the next call. Return whether there is a key to mint it with. */
  forget(): boolean {
    this.#until = 0;
    return this.key !== "";
  }

  /** Return the headers to send with a request; none without a key. */
  async headers(): Promise<Headers> {
    if (!this.key) return {};
    if (performance.now() >= this.#until) {
      const minted = await this.#mint();
      this.#shown = minted.token ? bearer(minted.token) : {};
      this.#until = performance.now() + RENEW * minted.expires_in_s * 1000;
    }
    return this.#shown;
  }

  async #mint(): Promise<MintedToken> {
    const response = await this.fetch(`${this.url}/v1/tokens`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...bearer(this.key) },
      body: "{}",
      signal: AbortSignal.timeout(MINT_MS),
    });
    if (!response.ok) {
      const { code, status } = await refusalOf(response);
      const remedy = status < 500 ? "check that the key is whole and has not been revoked" : "try again later";
      throw new NotMinted(`${this.url} mints no token for the API key (${code}); ${remedy}`, code, status);
    }
    try {
      const minted: unknown = await response.json();
      if (isMinted(minted)) return minted;
      throw new TypeError("the answer has no token");
    } catch (error) {
      const why = `${this.url} answered a request for a token with something else (${wordsOf(error)}); check the address`;
      throw new NotMinted(why, "BAD_REPLY", response.status);
    }
  }
}

function isMinted(value: unknown): value is MintedToken {
  const given = value as Partial<MintedToken> | null;
  return typeof given?.token === "string" && typeof given.expires_in_s === "number";
}
