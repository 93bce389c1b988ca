// SPDX-License-Identifier: Apache-2.0
// Servers of one's own for the flow tests: the real binaries of the build folder that STOCKADE_BUILD names, on private
// sockets; and a proxy that cuts connections where a test wants it.
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, rmSync, openSync, readFileSync } from "node:fs";
import { closeSync, chmodSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import type { Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "../../src/client.js";
import { info } from "../../src/info.js";

export const build = process.env["STOCKADE_BUILD"] ?? "";

/** For `{ skip }` of a test: false where the binary is there and may be used. */
export function missing(binary: string, root = false): string | false {
  if (build === "" || !existsSync(join(build, binary))) {
    return `${binary} is not built (STOCKADE_BUILD=${build})`;
  }
  return root && process.getuid?.() !== 0 ? "needs root" : false;
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) {
      resolve();
    } else {
      child.once("exit", () => {
        resolve();
      });
    }
  });
}

/** A program of the build folder in a folder of its own. */
abstract class Program {
  readonly folder = mkdtempSync(join(tmpdir(), "stockade-node-"));
  readonly path: string;
  readonly address: string;
  protected child: ChildProcess | undefined;

  constructor(socket: string) {
    chmodSync(this.folder, 0o755);
    this.path = join(this.folder, socket);
    this.address = `ipc://${this.path}`;
  }

  abstract start(): Promise<void>;

  log(): string {
    return readFileSync(join(this.folder, "log"), "utf8");
  }

  protected launch(binary: string, args: string[]): ChildProcess {
    const log = openSync(join(this.folder, "log"), "a");
    this.child = spawn(join(build, binary), args, { stdio: ["ignore", "pipe", log] });
    closeSync(log);
    return this.child;
  }

  /** kill -9, as a crash would. */
  async crash(): Promise<void> {
    if (this.child !== undefined) {
      this.child.kill("SIGKILL");
      await ended(this.child);
    }
  }

  /** SIGTERM: it drains. Resolves when it is gone. */
  async drain(): Promise<number | null> {
    this.child?.kill("SIGTERM");
    if (this.child !== undefined) {
      await ended(this.child);
    }
    return this.child?.exitCode ?? null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child?.exitCode === null && this.child.signalCode === null) {
      this.child.kill("SIGTERM");
      const hurry = setTimeout(() => this.child?.kill("SIGTERM"), 5_000); // jobs that still run are not waited for
      const late = setTimeout(() => this.child?.kill("SIGKILL"), 20_000);
      await ended(this.child);
      clearTimeout(hurry);
      clearTimeout(late);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The RPC layer alone, with a service that echoes. */
export class EchoServer extends Program {
  tcp = "";

  constructor() {
    super("s");
  }

  async start(): Promise<void> {
    const child = this.launch("tests/echo/echo-server", ["grace_ms=3000", this.address, "tcp://127.0.0.1:0"]);
    let text = "";
    for await (const chunk of child.stdout ?? []) {
      text += String(chunk);
      if (/^ready$/m.test(text)) {
        this.tcp = /^listening (tcp:.*)$/m.exec(text)?.[1] ?? "";
        child.stdout?.resume();
        return;
      }
    }
    throw new Error(`echo-server did not start: ${this.log()}`);
  }
}

/** For a configuration, where no test depends on the BPF programs: to load them takes most of a start. */
export const NO_BPF = "bpf: {enabled: false}\n";

let brokers = 0;

/** A broker with a state folder and a cgroup of its own. */
export class Broker extends Program {
  readonly #cgroup = `/stockade-node-${process.pid}-${++brokers}`;

  readonly #config: string[] = [];

  /** `policy`: a policy in YAML; `more`: the rest of the configuration. */
  constructor(policy = "", more = "") {
    super("run/s"); // it wants a folder of its own, and makes it
    const config = join(this.folder, "stockaded.yaml");
    if (policy !== "") {
      writeFileSync(join(this.folder, "policy.yaml"), policy);
      writeFileSync(config, `policy_files: ['${this.folder}/policy.yaml']\n`);
    }
    if (more !== "") {
      appendFileSync(config, more);
    }
    if (policy + more !== "") {
      this.#config.push("--config", config);
    }
  }

  // Right after a crash the old spawner may still be clearing its cgroup, so a start is tried a second time, as an init
  // system does it.
  async start(): Promise<void> {
    try {
      await this.#startOnce();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      await this.#startOnce();
    }
  }

  async #startOnce(): Promise<void> {
    const state = join(this.folder, "state");
    const flags = [...this.#config, "--listen", this.address, "--state-dir", state, "--cgroup", this.#cgroup];
    const child = this.launch("server/stockaded", flags);
    child.stdout?.resume();
    const end = performance.now() + 60_000;
    while (performance.now() < end && child.exitCode === null && child.signalCode === null) {
      const client = new Client({ address: this.address });
      try {
        await info({ client, deadline: 5 });
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 50));
      } finally {
        await client.close();
      }
    }
    throw new Error(`stockaded does not answer:\n${this.log()}`);
  }

  client(): Client {
    return new Client({ address: this.address, reconnectTimeout: 30 });
  }
}

/** Passes bytes on, until it is told to cut. */
export class Proxy {
  readonly path: string;
  readonly address: string;
  connections = 0;
  #server: Server;
  #open = new Set<Socket>();
  /** Called for each piece that the client sends; true: cut now, before it is passed on. */
  onRequest: (chunk: Buffer) => boolean = () => false;
  /** Called for each piece that the server sends; true: cut now, before it is passed on. */
  onReply: (chunk: Buffer) => boolean = () => false;

  /** Cut before the frame of this number, counted both ways; once. */
  cutBefore = Infinity;
  /** It was cut there. */
  wasCut = false;

  private constructor(target: Program) {
    this.path = join(target.folder, `proxy-${process.pid}-${Math.random().toString(36).slice(2)}`);
    this.address = `ipc://${this.path}`;
    this.#server = createServer((client) => {
      this.connections++;
      const server = connect(target.path);
      this.#pass(client, server, (chunk) => this.onRequest(chunk));
      this.#pass(server, client, (chunk) => this.onReply(chunk));
    });
  }

  static async to(target: Program): Promise<Proxy> {
    const made = new Proxy(target);
    await new Promise<void>((resolve) => made.#server.listen(made.path, resolve));
    return made;
  }

  #pass(from: Socket, to: Socket, wantsCut: (chunk: Buffer) => boolean): void {
    this.#open.add(from);
    let rest: Buffer | undefined;
    from.on("error", () => undefined);
    from.on("data", (piece: Buffer) => {
      let chunk = piece;
      if (this.cutBefore !== Infinity) {
        const begun = rest === undefined ? 8 : 0; // after the hello
        const bytes = Buffer.concat([rest ?? Buffer.alloc(0), piece]);
        const end = this.#whole(bytes, begun);
        chunk = bytes.subarray(0, end.at);
        rest = bytes.subarray(end.at);
        if (end.cut) {
          to.write(chunk);
          from.destroy();
          to.destroy();
          return;
        }
      }
      if (wantsCut(chunk)) {
        from.destroy();
        to.destroy();
      } else if (!to.write(chunk)) {
        from.pause();
        to.once("drain", () => from.resume());
      }
    });
    from.on("close", () => {
      this.#open.delete(from);
      to.destroy();
    });
  }

  // Where the whole frames end, or the one begins that is not to pass.
  #whole(bytes: Buffer, begin: number): { at: number; cut: boolean } {
    let at = Math.min(begin, bytes.length);
    while (bytes.length >= at + 9) {
      const next = at + 9 + Number(bytes.readBigUInt64BE(at + 1));
      if (bytes.length < next) {
        break;
      }
      if (--this.cutBefore < 0 && !this.wasCut) {
        this.wasCut = true;
        return { at, cut: true };
      }
      at = next;
    }
    return { at, cut: false };
  }

  /** Cuts every connection now. */
  cut(): void {
    for (const socket of this.#open) {
      socket.destroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => this.#server.close(() => {
      resolve();
    }));
  }
}
