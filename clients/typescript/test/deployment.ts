// A real deployment for tests: `dhsched up` with Workers that print their input, each part a process.

import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import { Client, type ClientOptions } from "@dhsched/client";
import { WebSocket } from "ws";

export const ROOT = resolve(import.meta.dirname, "../../../../..");
const DHSCHED = process.env["DHSCHED"] ?? join(ROOT, ".venv/bin/dhsched");
const START_MS = 120_000;
export const WAIT_MS = 60_000;

interface Consumed {
  readonly live: string;
  readonly epoch: number;
  readonly seq: number;
  readonly text: string;
}

/** Wait until the condition holds, and return what it returned. */
export async function until<T>(condition: () => T | Promise<T>, what: string, ms = WAIT_MS): Promise<NonNullable<T>> {
  for (const giveUp = Date.now() + ms; ; ) {
    const found = await condition();
    if (found) return found;
    assert(Date.now() < giveUp, `waited ${ms / 1000} s for ${what}`);
    await sleep(50);
  }
}

/** The deployment of all tests, which run.test.ts starts and stops. */
export let at: Deployment;

export async function start(): Promise<void> {
  at = await Deployment.start();
}

export class Deployment {
  /** The processes by name: dispatch-1, infer-1, worker-1 and so on. One that is killed is started again with another pid. */
  readonly pids = new Map<string, number>();
  readonly urls = new Map<string, string>();
  readonly printed: string[] = [];
  readonly consumed: Consumed[] = [];
  /** API keys of role app and admin. */
  key = "";
  adminKey = "";
  #ended = false;

  private constructor(
    private readonly process: ChildProcess,
    private readonly folder: string,
  ) {
    assert(process.stdout && process.stderr);
    for (const output of [process.stdout, process.stderr]) {
      createInterface({ input: output }).on("line", (line) => this.#hear(line));
    }
    process.on("exit", () => (this.#ended = true));
  }

  static async start(): Promise<Deployment> {
    const folder = await mkdtemp(join(tmpdir(), "dhsched-typescript-"));
    const made = new Deployment(
      spawn(DHSCHED, ["up", "--any-port", "--workers", "3", "--runtime", "echo"], {
        env: { ...process.env, XDG_STATE_HOME: folder, HOME: folder },
        stdio: ["ignore", "pipe", "pipe"],
      }),
      folder,
    );
    try {
      await until(() => made.#ended || made.printed.some((line) => line.startsWith("Try,")), "a deployment", START_MS);
      assert(!made.#ended, made.printed.join("\n"));
      [made.key, made.adminKey] = [await made.#newKey("app"), await made.#newKey("admin")];
      return made;
    } catch (error) {
      await made.stop();
      throw error;
    }
  }

  async #newKey(role: string): Promise<string> {
    return (JSON.parse(await this.dhsched("key", "create", "--role", role, "--json")) as { key: string }).key;
  }

  get dispatch(): string[] {
    return ["dispatch-1", "dispatch-2"].map((name) => this.url(name));
  }

  url(name: string): string {
    const found = this.urls.get(name);
    assert(found, `${name} has no address`);
    return found;
  }

  client(options: ClientOptions = {}, dispatch: string[] = this.dispatch): Client {
    return new Client(dispatch, { key: this.key, webSocket: WebSocket, ...options });
  }

  /** Run a verb of the command line with the deployment's admin key. */
  async dhsched(...verb: string[]): Promise<string> {
    const env = { ...process.env, XDG_STATE_HOME: this.folder, HOME: this.folder, DHSCHED_URL: this.dispatch.join(",") };
    return (await promisify(execFile)(DHSCHED, verb, { env })).stdout;
  }

  /** The pid of the Worker that runs a live: `worker-1` of `worker-1#3`. */
  owner(worker: string): number {
    const found = this.pids.get(worker.split("#")[0] ?? "");
    assert(found, `no process of ${worker}`);
    return found;
  }

  /** What Workers consumed of a live. */
  of(live: string): Consumed[] {
    return this.consumed.filter((each) => each.live === `default/${live}`);
  }

  async stop(): Promise<void> {
    if (!this.#ended) {
      this.process.kill("SIGTERM");
      await until(() => this.#ended, "the end of the deployment").catch(() => this.process.kill("SIGKILL"));
    }
    await rm(this.folder, { recursive: true, force: true });
  }

  #hear(line: string): void {
    if (line.startsWith("{")) {
      const said = JSON.parse(line) as Partial<Consumed>;
      if (said.seq !== undefined && said.live !== undefined) this.consumed.push(said as Consumed);
      return;
    }
    this.printed.push(line);
    const started = /^ {2}([a-z]+-\d+) +pid (\d+) +(http\S+)?/.exec(line) ?? /^([a-z]+-\d+) is started again, pid (\d+)/.exec(line);
    if (started?.[1] === undefined) return;
    this.pids.set(started[1], Number(started[2]));
    if (started[3] !== undefined) this.urls.set(started[1], started[3]);
  }
}
