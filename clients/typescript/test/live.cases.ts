// The web component where no browser is: its types, and that a server that renders pages can import it.

import assert from "node:assert/strict";
import { test } from "node:test";

import type { DhschedLive, LiveState } from "@dhsched/client/live";
import type { components } from "./generated/room.js";

// The component writes its types down by hand: these do not compile if the room's document says otherwise.
type Served = components["schemas"]["StateOut"];
export const served = (state: Served): LiveState => state;
export const written = (state: LiveState): Served => state;
export const used = async (live: DhschedLive): Promise<number | null | undefined> => {
  live.src = "https://room.example/live/demo";
  live.token = "";
  live.addEventListener("takeover", () => live.connection === "connected" && live.state?.on_air);
  await live.interrupt();
  return (await live.say("Hello.", { request_id: "r1" })).seq;
};

test("the component can be imported where there are no elements", async () => {
  const { RoomRefused } = await import("@dhsched/client/live");
  assert.equal(new RoomRefused(403, { code: "FORBIDDEN", detail: "no" }).code, "FORBIDDEN");
});
