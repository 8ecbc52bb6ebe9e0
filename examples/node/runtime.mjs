// A runtime in another language: one process per live, JSON lines in and out.
//   dhsched run worker --exec "node examples/node/runtime.mjs" --pool gpu --capacity 4
import { createInterface } from "node:readline";

let count = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  const opened = message.open ?? message.resume; // `resume`: the state has changed since this process was prepared.
  if (opened) {
    count = opened.state.count ?? 0;
  } else if (message.input) {
    count += 1;
    console.error(`${count}: ${message.input.text}`); // Standard output is for messages.
    console.log(JSON.stringify({ ack: message.input.seq, state: { count } }));
  } else if (message.close) {
    break;
  }
}
process.exit(0);
