// SPDX-License-Identifier: Apache-2.0
// Sandboxes that are kept: the interface that most programs need, beside `run` (jobs.ts).
import { randomBytes } from "node:crypto";
import { inspect } from "node:util";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Client } from "./client.js";
import { AlreadyExistsError, ConnectionLostError, NotFoundError, UnavailableError } from "./errors.js";
import { Forward } from "./forward.js";
import type { ForwardOptions } from "./forward.js";
import { ProcessService } from "./gen/stockade/v1/process_service_pb.js";
import type { Process as ProcessMessage } from "./gen/stockade/v1/process_service_pb.js";
import { SandboxService, SandboxState } from "./gen/stockade/v1/sandbox_service_pb.js";
import type { Sandbox as SandboxMessage } from "./gen/stockade/v1/sandbox_service_pb.js";
import {
  collectorOf,
  commandOf,
  OPTIONS,
  controlOf,
  controlOnly,
  defaultClient,
  finish,
  isStdinOpen,
  limitsOf,
  wholeStdin,
} from "./jobs.js";
import type { CallControl, CommandOptions, FreshSandbox, RunOptions, StartOptions } from "./jobs.js";
import { limitsInForce, limitsMessage } from "./limits.js";
import type { Limits, LimitsInForce } from "./limits.js";
import { PORT_MAX, letsIn, networkMode, networkOf, networkPolicy } from "./network.js";
import type { Network, NetworkPolicy } from "./network.js";
import { Process, splitStdin } from "./process.js";
import { RunResult } from "./result.js";
import { badArgument, knownOptions, lifetimeMs, textsOf } from "./units.js";
import type { Duration, Size } from "./units.js";

/** For `Sandbox.create`. */
export interface CreateOptions extends FreshSandbox, CallControl {
  /** Time until it is deleted: seconds or "10m". Default: the broker's own (5 minutes). At most 30 days. */
  ttl?: Duration;
  /** Limits of the sandbox and its jobs. */
  limits?: Limits;
}

/** A sandbox as the broker tells it. */
export interface SandboxInfo {
  /** 32 lower-case hex digits. */
  id: string;
  /** The template that it was made from. */
  template: string;
  /** The name that the caller gave, or "". */
  name: string;
  /** What it does. */
  state: "running" | "paused" | "deleting" | "unknown";
  /** Limits in force: bytes and seconds. */
  limits: LimitsInForce;
  /** Mode of the network policy in force. */
  network: Network | "unknown";
  /** The network policy in force. */
  policy: NetworkPolicy;
  /** The caller's own labels. */
  metadata: Readonly<Record<string, string>>;
  /** When it was made. */
  created: Date;
  /** When it will be deleted. */
  expires: Date;
  /** Jobs that run in it. */
  processes: number;
}

/** A process as the broker tells it: one that runs, or one that ended a short while ago. */
export interface ProcessInfo {
  /** 32 lower-case hex digits; `Sandbox.attach` takes it. */
  id: string;
  /** The sandbox that it runs in. */
  sandboxId: string;
  /** Its process id inside the sandbox. */
  pid: number;
  /** Its arguments, cut after 16 of them and 256 bytes each. */
  args: readonly string[];
  /** When it started. */
  started: Date;
  /** There when it is over. */
  result: RunResult | undefined;
  /** Bytes of output so far. */
  output: number;
  /** It has a terminal. */
  terminal: boolean;
}

function dateOf(stamp: Timestamp | undefined): Date {
  return new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6));
}

// A sandbox has a time to live, a job a timeout: one for the other would be passed over.
function needTtl(options: object): void {
  if ("timeout" in options) {
    throw badArgument("timeout", "is of a job; the time to live of a sandbox is called ttl");
  }
}

const states: Readonly<Record<number, SandboxInfo["state"]>> = {
  [SandboxState.RUNNING]: "running",
  [SandboxState.PAUSED]: "paused",
  [SandboxState.DELETING]: "deleting",
};

function sandboxInfo(message: SandboxMessage | undefined): SandboxInfo {
  return {
    id: message?.id ?? "",
    template: message?.template ?? "",
    name: message?.name ?? "",
    state: states[message?.state ?? 0] ?? "unknown",
    limits: limitsInForce(message?.limits),
    network: networkMode(message?.network),
    policy: networkPolicy(message?.network),
    metadata: message?.metadata ?? {},
    created: dateOf(message?.createTime),
    expires: dateOf(message?.expireTime),
    processes: message?.processes ?? 0,
  };
}

function processInfo(message: ProcessMessage): ProcessInfo {
  return {
    id: message.id,
    sandboxId: message.sandboxId,
    pid: message.pid,
    args: message.args,
    started: dateOf(message.startTime),
    result: message.result === undefined ? undefined : new RunResult(message.result),
    output: Number(message.outputBytes),
    terminal: message.terminal,
  };
}

/**
 * A sandbox that is kept until it is deleted or its time is over; with `await using` it is deleted at the end of the
 * block. Its methods reject with a StockadeError.
 *
 * @example
 * await using sbx = await Sandbox.create({ template: "python", ttl: 300 });
 * const r = await sbx.run(["python3", "-c", code], { onStdout: console.log });
 */
export class Sandbox implements AsyncDisposable {
  readonly #client: Client;
  #info: SandboxInfo;

  private constructor(client: Client, info: SandboxInfo) {
    this.#client = client;
    this.#info = info;
  }

  /**
   * Makes a sandbox, or takes a ready one; it runs when this resolves. Rejects with InvalidArgumentError,
   * AlreadyExistsError (the name is taken) and ResourceExhaustedError (too many sandboxes).
   */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    needTtl(options);
    knownOptions(options, { ...OPTIONS.fresh, ...OPTIONS.control, ttl: true, limits: true });
    const client = options.client ?? defaultClient();
    const request = {
      template: options.template ?? "",
      ...(options.limits === undefined ? {} : { limits: limitsMessage(options.limits) }),
      ...networkOf(options.network),
      metadata: textsOf(options.metadata, "metadata"),
      ttlMs: lifetimeMs(options.ttl),
      name: options.name ?? "",
    };
    const { sandbox } = await client.unary(SandboxService.method.create, request, controlOf(options));
    return new Sandbox(client, sandboxInfo(sandbox));
  }

  /** A sandbox that is there already, by its id or name. Rejects with NotFoundError. */
  static async connect(id: string, options: { client?: Client } & CallControl = {}): Promise<Sandbox> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = options.client ?? defaultClient();
    const { sandbox } = await client.unary(SandboxService.method.get, { id }, controlOf(options));
    return new Sandbox(client, sandboxInfo(sandbox));
  }

  /**
   * The caller's sandboxes, oldest first; with `metadata` only those that have all of these labels. Rejects with
   * UnavailableError when the broker cannot be reached.
   */
  static async *list(
    options: { client?: Client; metadata?: Readonly<Record<string, string>> } & CallControl = {},
  ): AsyncGenerator<SandboxInfo, void, undefined> {
    knownOptions(options, { ...OPTIONS.control, client: true, metadata: true });
    const client = options.client ?? defaultClient();
    let pageToken = "";
    do {
      const request = { pageSize: 1000, pageToken, metadata: textsOf(options.metadata, "metadata") };
      const page = await client.unary(SandboxService.method.list, request, controlOf(options));
      yield* page.sandboxes.map(sandboxInfo);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** 32 lower-case hex digits. */
  get id(): string {
    return this.#info.id;
  }

  /** What the broker told last; `refresh()` asks again. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** In short, for console.log: its id, its name and its state. */
  [inspect.custom](): string {
    const { id, name, state } = this.#info;
    return `<Sandbox ${id}${name === "" ? "" : ` ${inspect(name)}`} ${state}>`;
  }

  /** Asks the broker how the sandbox is. Rejects with NotFoundError when it is gone. */
  async refresh(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.get, { id: this.id }, controlOnly(options));
    return this.#take(sandbox);
  }

  /**
   * Runs a command and waits for its end. A job that ends badly is no error: its result says so. Given up (`signal`,
   * `deadline`, a callback that throws), it is killed. Rejects with FailedPreconditionError (paused), NotFoundError
   * (deleted), and as the function `run` does.
   */
  async run(args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    knownOptions(options, OPTIONS.run);
    const { inline, more } = splitStdin(options.stdin);
    const process = await this.#start(args, options, inline, { stdinOpen: more !== undefined, foreground: true });
    return finish(process, options, more);
  }

  /**
   * Starts a command and comes back when it runs. It goes on when this program ends; `attach` finds it again. It lives
   * as long as its sandbox unless a `timeout` or `limits`, here or of `create`, say otherwise. When the connection is
   * lost, reading goes on after the last byte that was seen. Rejects as `run` does.
   */
  async start(args: readonly string[], options: StartOptions = {}): Promise<Process> {
    knownOptions(options, OPTIONS.start);
    const mode = { stdinOpen: isStdinOpen(options), foreground: false };
    return this.#start(args, options, wholeStdin(options.stdin), mode);
  }

  /**
   * A process that runs in a sandbox, or ended less than 30 s ago, by its id. `offset`: first byte of output that is
   * wanted; what is no longer kept comes as a gap. Rejects with NotFoundError.
   */
  async attach(processId: string, options: CallControl & { offset?: number; keep?: Size } = {}): Promise<Process> {
    knownOptions(options, { ...OPTIONS.control, offset: true, keep: true });
    const offset = options.offset ?? 0;
    if (!Number.isSafeInteger(offset) || offset < 0) {
      throw badArgument("offset", `${String(offset)} is not a whole number from 0 on`);
    }
    const request = { processId, offset: BigInt(offset) };
    const stream = this.#client.stream(ProcessService.method.attach, request, controlOf(options));
    const collector = collectorOf(options);
    collector.offset = offset;
    return Process.begin({ client: this.#client, stream, collector, detachable: true });
  }

  /**
   * Listens on this machine's loopback, and carries each connection to a port of the sandbox, which its policy's
   * `inbound` has to name. Rejects with PermissionDeniedError (the policy lets nobody in at that port),
   * InvalidArgumentError (no port, or no address of the loopback), and the system's error when the local port is taken.
   */
  async forward(port: number, options: ForwardOptions = {}): Promise<Forward> {
    knownOptions(options, { localPort: true, host: true, onError: true });
    if (!Number.isInteger(port) || port < 1 || port > PORT_MAX) {
      throw badArgument("port", `${port} is none (1 to ${PORT_MAX})`);
    }
    const { policy } = await this.refresh();
    if (!letsIn(policy, port)) {
      const refused = this.#client.stream(SandboxService.method.forward, { id: this.id, port });
      await refused.next(); // in the broker's words, unless the policy has become another one in between
      refused.cancel();
    }
    return Forward.listen(this.#client, this.id, port, options);
  }

  /**
   * Its processes, oldest first: those that run and those that `attach` still finds. Rejects with NotFoundError when
   * the sandbox is gone.
   */
  async *processes(options: CallControl = {}): AsyncGenerator<ProcessInfo, void, undefined> {
    let pageToken = "";
    do {
      const request = { sandboxId: this.id, pageSize: 1000, pageToken };
      const page = await this.#client.unary(ProcessService.method.list, request, controlOnly(options));
      yield* page.processes.map(processInfo);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /**
   * Sets the time until it is deleted, from now on, and labels (one with the value "" is removed), and gives it another
   * network policy, whole: that holds at once, and cuts connections that it forbids. Rejects with NotFoundError when it
   * is gone, InvalidArgumentError when a value is out of its bounds, FailedPreconditionError when the policy is wider
   * than its template's.
   */
  async update(
    changes: {
      ttl?: Duration;
      metadata?: Readonly<Record<string, string>>;
      network?: Network | NetworkPolicy;
    },
    options: CallControl = {},
  ): Promise<SandboxInfo> {
    needTtl(changes);
    knownOptions(changes, { ttl: true, metadata: true, network: true }, "changes");
    const request = {
      id: this.id,
      ttlMs: lifetimeMs(changes.ttl),
      metadata: textsOf(changes.metadata, "metadata"),
      ...networkOf(changes.network),
    };
    const { sandbox } = await this.#client.unary(SandboxService.method.update, request, controlOnly(options));
    return this.#take(sandbox);
  }

  /** Freezes every process in it. Rejects with FailedPreconditionError when it does not run. */
  async pause(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.pause, { id: this.id }, controlOnly(options));
    return this.#take(sandbox);
  }

  /** Lets it go on. Rejects with FailedPreconditionError when it is not paused. */
  async resume(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.resume, { id: this.id }, controlOnly(options));
    return this.#take(sandbox);
  }

  /**
   * Ends every job in it and removes it; nothing of it is left on the host when this resolves. Nothing happens when it
   * is gone already. Rejects with UnavailableError when the broker cannot be reached.
   */
  async delete(options: CallControl = {}): Promise<void> {
    try {
      await this.#client.unary(SandboxService.method.delete, { id: this.id }, controlOnly(options));
    } catch (e) {
      if (!(e instanceof NotFoundError)) {
        throw e;
      }
    }
  }

  /** delete(), for `await using`. Rejects as it does. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete();
  }

  #take(message: SandboxMessage | undefined): SandboxInfo {
    this.#info = sandboxInfo(message);
    return this.#info;
  }

  // When the connection is lost before the process is known, the same key is sent again to the same broker: it was
  // never begun and begins now, or the broker answers which process the first request made.
  async #start(
    args: readonly string[],
    options: CommandOptions & CallControl,
    inline: Uint8Array,
    { stdinOpen, foreground }: { stdinOpen: boolean; foreground: boolean },
  ): Promise<Process> {
    const client = this.#client;
    const request = {
      sandboxId: this.id,
      foreground,
      command: commandOf(args, options, inline, stdinOpen),
      ...limitsOf(options),
    };
    const control = { idempotencyKey: randomBytes(16).toString("hex"), ...controlOf(options) };
    const begin = (): Promise<Process> => {
      const stream = client.stream(ProcessService.method.start, request, control);
      return Process.begin({ client, stream, collector: collectorOf(options, args), detachable: true });
    };
    const since = performance.now();
    let lost: ConnectionLostError;
    try {
      return await begin();
    } catch (e) {
      if (!(e instanceof ConnectionLostError) || !(await client.isSameBroker(since).catch(() => false))) {
        throw e;
      }
      lost = e;
    }
    try {
      return await begin();
    } catch (e) {
      if (e instanceof UnavailableError) {
        throw lost; // the first attempt may have been executed
      }
      const processId = e instanceof AlreadyExistsError ? e.info["process_id"] : undefined;
      if (processId === undefined) {
        throw e;
      }
      const { deadline, signal, keep } = options;
      return this.attach(processId, {
        ...(deadline === undefined ? {} : { deadline }),
        ...(signal === undefined ? {} : { signal }),
        ...(keep === undefined ? {} : { keep }),
      });
    }
  }
}
