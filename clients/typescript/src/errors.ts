// Every error that the client throws on purpose:
//
//   DhschedError
//     Refused        a server refused the call: `code`, `remedy`, the whole problem document
//     NotMinted      a server mints no token for the API key
//     Unreachable    no replica answered in time

import type { Code, Json } from "./models.js";
import { REMEDIES } from "./remedies.js";

export class DhschedError extends Error {
  override name = "DhschedError";
}

/** A server refused the call. */
export class Refused extends DhschedError {
  override name = "Refused";
  /** Stable, for programs: a `Code`; of a server that is not ours, the status as text. */
  readonly code: Code | (string & {});
  /** A sentence for people, with the numbers. */
  readonly detail: string;
  /** What to do about it. */
  readonly remedy: string;
  /** Whether an earlier try of the same call may have been done. */
  unknown = false;

  constructor(
    readonly status: number,
    /** The whole problem document: the numbers of `detail` are members of it. */
    readonly problem: Readonly<Json>,
    /** For how long the server asks to wait. */
    readonly retryAfterMs: number | null = null,
  ) {
    const code = String(problem["code"] ?? status);
    const detail = String(problem["detail"] ?? `the server answered ${status}`);
    super(`${detail} (${code})`);
    this.code = code;
    this.detail = detail;
    this.remedy = Object.hasOwn(REMEDIES, code) ? REMEDIES[code as Code] : "check the address of the server";
  }
}

/** A server mints no token for the API key. */
export class NotMinted extends DhschedError {
  override name = "NotMinted";

  constructor(
    message: string,
    readonly code: Code | (string & {}),
    readonly status: number,
  ) {
    super(message);
  }
}

/** No replica answered in time. The call may have been done: repeat it with the same id. */
export class Unreachable extends DhschedError {
  override name = "Unreachable";

  constructor(
    message: string,
    /** What went wrong, by the address of the replica. */
    readonly troubles: Readonly<Record<string, string>> = {},
    /** The last answer of a replica that could not serve. */
    readonly refused: Refused | null = null,
  ) {
    super(message);
  }
}

/** Return a server's error document as an error. */
export async function refusalOf(response: Response): Promise<Refused> {
  const after = response.headers.get("Retry-After");
  const afterMs = after !== null && /^\d+$/.test(after) ? Number(after) * 1000 : null;
  const problem: unknown = await response.json().catch(() => null);
  if (isJson(problem)) return new Refused(response.status, problem, afterMs);
  // A load balancer without a replica behind it sends no error document.
  const code = [502, 503, 504].includes(response.status) ? "NOT_READY" : String(response.status);
  const detail = `the server answered ${response.status} with a body that is not a problem document`;
  return new Refused(response.status, { code, detail }, afterMs);
}

export function isJson(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return an error's message with its cause: `fetch failed` alone says nothing. */
export function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === "TimeoutError") return "no answer in time";
  const cause = error.cause instanceof Error ? error.cause.message || error.cause.name : "";
  return cause ? `${error.message}: ${cause}` : error.message || error.name;
}
