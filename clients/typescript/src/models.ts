// The documents of the API, by the names that the OpenAPI document gives them. Their fields are as they travel.

import type { components, operations } from "./generated/dispatch.js";

type Schemas = components["schemas"];

export type Problem = Schemas["Problem"];
/** The code of a refusal: stable, for programs. */
export type Code = Problem["code"];
export type CreateLive = Schemas["CreateLive"];
export type ChangeLive = Schemas["ChangeLive"];
export type Live = Schemas["Live"];
export type LiveSummary = Schemas["LiveSummary"];
export type Placed = Schemas["Placed"];
export type Ended = Schemas["Ended"];
export type History = Schemas["History"];
export type Pushed = Schemas["Pushed"];
export type PushText = Schemas["PushText"];
export type ViewerToken = Schemas["ViewerToken"];
export type MintViewerToken = Schemas["MintViewerToken"];
export type Grant = NonNullable<MintViewerToken["grants"]>[number];
export type MintedToken = Schemas["MintedToken"];
export type Reassign = Schemas["Reassign"];
/** Filters of a list of lives: a live must match every one that is given. */
export type LiveFilters = Omit<NonNullable<operations["list_lives"]["parameters"]["query"]>, "after" | "limit">;
/** A JSON object, as metadata and configurations are. */
export type Json = { [name: string]: unknown };

/** An event of a live: committed, claimed, said, dropped, interrupted, released, acked, emitted, stalled, ended. */
export interface LiveEvent {
  readonly name: string;
  readonly data: Json;
}
