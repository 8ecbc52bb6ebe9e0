import { Client, Refused } from "@dhsched/client";
import { WebSocket } from "ws"; // Node 22 has its own; then leave this out.

const client = new Client(process.env["DHSCHED_URL"] ?? "http://127.0.0.1:7400", {
  key: process.env["DHSCHED_KEY"] ?? "",
  webSocket: WebSocket,
});
try {
  const { live_id } = await client.create("anna", { metadata: { user: 7 }, wait_s: 10 });
  const stream = client.stream(live_id); // Many items: in order, each exactly once.
  for (const sentence of ["Good morning.", "How are you?"]) await stream.send(sentence, { boundary: true });
  await stream.close(); // Now both are stored.
  for await (const { name, data } of client.events(live_id)) {
    console.log(name, JSON.stringify(data));
    if (name === "acked" && data["acked"] === 2) await client.end(live_id);
  }
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  console.error(`${error.code}: ${error.detail}; ${error.remedy}`);
  process.exitCode = 1;
}
