// @dhsched/client: create lives, push to them, follow them. `@dhsched/client/live` is the web component.

export { Client, type ClientOptions, type CreateOptions, viewerLink } from "./client.js";
export { DhschedError, NotMinted, Refused, Unreachable } from "./errors.js";
export type * from "./models.js";
export { REMEDIES } from "./remedies.js";
export type { Socket, SocketClass } from "./sockets.js";
export type { ItemOptions, Sent, Stream } from "./stream.js";
