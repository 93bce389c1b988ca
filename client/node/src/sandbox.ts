// Sandboxes and one-shot runs: the interface that most programs need.
import { randomBytes } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "./call.js";
import { Client } from "./client.js";
import { AlreadyExistsError, ConnectionLostError, FailedPreconditionError, NotFoundError } from "./errors.js";
import { Collector, Lines } from "./events.js";
import type { LineCallback, Output, ProcessEvent } from "./events.js";
import { ProcessService, CommandSchema } from "./gen/stockade/v1/process_service_pb.js";
import type { Process as ProcessMessage } from "./gen/stockade/v1/process_service_pb.js";
import { SandboxService, SandboxState } from "./gen/stockade/v1/sandbox_service_pb.js";
import type { Sandbox as SandboxMessage } from "./gen/stockade/v1/sandbox_service_pb.js";
import { limitsInForce, limitsMessage } from "./limits.js";
import type { Limits, LimitsInForce } from "./limits.js";
import { networkMode, networkOf, networkPolicy } from "./network.js";
import type { Network, NetworkPolicy } from "./network.js";
import { Process, splitStdin } from "./process.js";
import type { Stdin, TerminalSize } from "./process.js";
import { RunResult } from "./result.js";
import { badArgument, parseSize, wholeMilliseconds } from "./units.js";
import type { Duration, Size } from "./units.js";

/** How a command is executed. */
export interface CommandOptions {
  /** Added to, or replacing, the template's environment. */
  env?: Readonly<Record<string, string>>;
  /** Absolute folder inside the sandbox. Default: the template's. */
  cwd?: string;
  /** What its stdin gives. Default: nothing, a reader sees end-of-file. */
  stdin?: Stdin;
  /** Give it a terminal of this size: stdout and stderr are then one stream. */
  terminal?: TerminalSize;
  /** Wall-clock limit of the job: seconds or "1.5m". It ends the job, and the result says so (`timedOut`). */
  timeout?: Duration;
  /** Limits of the job. */
  limits?: Limits;
  /** Bytes of stdout, and of stderr, that the result keeps. Default: "64M"; 0: nothing. */
  keep?: Size;
}

/** The call that a command is. See `CallOptions`. */
export type CallControl = Pick<CallOptions, "deadline" | "signal" | "idempotencyKey">;

/** For `Sandbox.start`. */
export interface StartOptions extends CommandOptions, CallControl {
  /** Leave stdin open for `Process.sendStdin`, after `stdin`. Default: only that of a terminal is. */
  stdinOpen?: boolean;
}

/** For `Sandbox.run`. */
export interface RunOptions extends CommandOptions, CallControl {
  /** Called with each line of stdout as it comes, without its line end; a promise that it gives is waited for. */
  onStdout?: LineCallback;
  /** The same for stderr. */
  onStderr?: LineCallback;
  /** Called with each piece of output as it comes, as bytes. */
  onOutput?: (output: Output) => unknown;
  /** Throw JobError unless the job exits with code 0. */
  check?: boolean;
}

/** What a one-shot run needs to know about its sandbox. */
export interface FreshSandbox {
  /** Name of the template. Default: "default". */
  template?: string;
  /** Network policy. Default: the template's. */
  network?: Network | NetworkPolicy;
  /** The caller's own labels: up to 32, names up to 64 bytes, values up to 256. */
  metadata?: Readonly<Record<string, string>>;
  /** Name of the sandbox, unique among the caller's own. */
  name?: string;
  /** The client to use. Default: one that all share, made from STOCKADE_ADDRESS and STOCKADE_TOKEN. */
  client?: Client;
}

/** For `Sandbox.create`. */
export interface CreateOptions extends FreshSandbox, CallControl {
  /** Time until it is deleted: seconds or "10m". Default: the template's (5 minutes). At most 30 days. */
  timeout?: Duration;
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

let shared: Client | undefined;

/** The client that all share who name none. It is made when it is first needed. */
export function defaultClient(): Client {
  shared ??= new Client();
  return shared;
}

function dateOf(stamp: Timestamp | undefined): Date {
  return new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6));
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

function commandOf(
  args: readonly string[],
  options: CommandOptions,
  inline: Uint8Array,
  stdinOpen: boolean,
): MessageInitShape<typeof CommandSchema> {
  if (!Array.isArray(args) || args.length === 0 || !args.every((a) => typeof a === "string")) {
    throw badArgument("args", 'a command is a list of strings, such as ["python3", "-c", "print(1)"]');
  }
  for (const [name, value] of Object.entries(options.env ?? {})) {
    if (typeof value !== "string") {
      throw badArgument(`env.${name}`, "the value of an environment variable is a string");
    }
  }
  return create(CommandSchema, {
    args: [...args],
    env: Object.entries(options.env ?? {}).map(([name, value]) => ({ name, value })),
    workdir: options.cwd ?? "",
    stdin: inline,
    stdinOpen,
    ...(options.terminal === undefined ? {} : { terminal: { ...options.terminal } }),
  });
}

function limitsOf(options: CommandOptions): { limits: ReturnType<typeof limitsMessage> } | undefined {
  const limits = { ...options.limits, ...(options.timeout === undefined ? {} : { wallTime: options.timeout }) };
  return Object.keys(limits).length === 0 ? undefined : { limits: limitsMessage(limits) };
}

function controlOf({ deadline, signal, idempotencyKey }: CallControl): CallOptions {
  return {
    ...(deadline === undefined ? {} : { deadline }),
    ...(signal === undefined ? {} : { signal }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  };
}

function collectorOf(options: CommandOptions): Collector {
  return new Collector(parseSize(options.keep ?? "64M", "keep"));
}

async function feed(process: Process, more: NonNullable<ReturnType<typeof splitStdin>["more"]>): Promise<void> {
  try {
    for await (const piece of more) {
      await process.sendStdin(piece);
    }
    await process.closeStdin();
  } catch (e) {
    // The job ended, or closed its stdin, before it had read all: that is its own business.
    if (!(e instanceof FailedPreconditionError || e instanceof NotFoundError)) {
      throw e;
    }
  }
}

async function handOver(process: Process, options: RunOptions): Promise<RunResult> {
  const lines = {
    stdout: options.onStdout === undefined ? undefined : new Lines(options.onStdout),
    stderr: options.onStderr === undefined ? undefined : new Lines(options.onStderr),
  };
  for await (const event of process as AsyncIterable<ProcessEvent>) {
    if (event.type !== "gap") {
      await options.onOutput?.(event);
      await lines[event.type]?.feed(event.data, false);
    }
  }
  await lines.stdout?.feed(new Uint8Array(0), true);
  await lines.stderr?.feed(new Uint8Array(0), true);
  return process.wait();
}

// Reads the output and feeds stdin side by side; when either fails, the process is not left behind.
async function finish(
  process: Process,
  options: RunOptions,
  more: ReturnType<typeof splitStdin>["more"],
): Promise<RunResult> {
  try {
    const fed = more === undefined ? Promise.resolve() : feed(process, more);
    const ended = handOver(process, options);
    const [result] = await Promise.all([ended, Promise.race([fed, ended])]);
    return options.check === true ? result.check() : result;
  } catch (e) {
    await process[Symbol.asyncDispose]().catch(() => undefined);
    throw e;
  }
}

/** For `run`. */
export interface OneShotOptions extends RunOptions, FreshSandbox {}

/** For `start`. */
export interface OneShotStartOptions extends StartOptions, FreshSandbox {}

/**
 * One job in a fresh sandbox that is destroyed after it. `args` is the program and its arguments. A job that ends badly
 * is no error: its result says so. Rejects with InvalidArgumentError (a field or a limit is out of its bounds),
 * ResourceExhaustedError (a quota is used up), CancelledError, DeadlineExceededError, ConnectionLostError (the broker
 * then cancels the job; it is not begun again), and JobError with `check`.
 *
 * @example
 * const r = await run(["python3", "-c", "print(6 * 7)"], { limits: { memory: "256M" }, timeout: 5 });
 * console.log(r.stdout, r.exitCode, r.bill.cpuTime);
 */
export async function run(args: readonly string[], options: OneShotOptions = {}): Promise<RunResult> {
  const { inline, more } = splitStdin(options.stdin);
  const process = await startOneShot(args, options, inline, more !== undefined);
  return finish(process, options, more);
}

/**
 * One job in a fresh sandbox, as a `Process`: for streaming, stdin and terminals. It is cancelled when its reader goes
 * away. Rejects as `run` does. `stdin` of more than 1 MiB, or in pieces, is for `run`: here `Process.sendStdin` does
 * it.
 */
export async function start(args: readonly string[], options: OneShotStartOptions = {}): Promise<Process> {
  return startOneShot(args, options, wholeStdin(options.stdin), isStdinOpen(options));
}

function isStdinOpen(options: StartOptions): boolean {
  return options.stdinOpen ?? options.terminal !== undefined;
}

function wholeStdin(stdin: Stdin | undefined): Uint8Array {
  const { inline, more } = splitStdin(stdin);
  if (more !== undefined) {
    throw badArgument("stdin", "more than 1 MiB, or in pieces: use stdinOpen and Process.sendStdin");
  }
  return inline;
}

async function startOneShot(
  args: readonly string[],
  options: CommandOptions & CallControl & FreshSandbox,
  inline: Uint8Array,
  stdinOpen: boolean,
): Promise<Process> {
  const client = options.client ?? defaultClient();
  const request = {
    command: commandOf(args, options, inline, stdinOpen),
    template: options.template ?? "",
    ...limitsOf(options),
    ...networkOf(options.network),
    metadata: { ...options.metadata },
    name: options.name ?? "",
  };
  const collector = collectorOf(options);
  const stream = client.stream(ProcessService.method.run, request, controlOf(options));
  return Process.begin({ client, stream, collector, detachable: false });
}

/**
 * A sandbox that is kept until it is deleted or its time is over; with `await using` it is deleted at the end of the
 * block. Its methods reject with a StockadeError.
 *
 * @example
 * await using sbx = await Sandbox.create({ template: "python", timeout: 300 });
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
    const client = options.client ?? defaultClient();
    const request = {
      template: options.template ?? "",
      ...(options.limits === undefined ? {} : { limits: limitsMessage(options.limits) }),
      ...networkOf(options.network),
      metadata: { ...options.metadata },
      ttlMs: BigInt(options.timeout === undefined ? 0 : wholeMilliseconds(options.timeout, "timeout")),
      name: options.name ?? "",
    };
    const { sandbox } = await client.unary(SandboxService.method.create, request, controlOf(options));
    return new Sandbox(client, sandboxInfo(sandbox));
  }

  /** A sandbox that is there already, by its id or name. Rejects with NotFoundError. */
  static async connect(id: string, options: { client?: Client } & CallControl = {}): Promise<Sandbox> {
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
    const client = options.client ?? defaultClient();
    let pageToken = "";
    do {
      const request = { pageSize: 1000, pageToken, metadata: { ...options.metadata } };
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

  /** Asks the broker how the sandbox is. Rejects with NotFoundError when it is gone. */
  async refresh(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.get, { id: this.id }, controlOf(options));
    return this.#take(sandbox);
  }

  /**
   * Runs a command and waits for its end. A job that ends badly is no error: its result says so. Given up (`signal`,
   * `deadline`, a callback that throws), it is killed. Rejects with FailedPreconditionError (paused), NotFoundError
   * (deleted), and as the function `run` does.
   */
  async run(args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    const { inline, more } = splitStdin(options.stdin);
    const process = await this.#start(args, options, inline, more !== undefined);
    return finish(process, options, more);
  }

  /**
   * Starts a command and comes back when it runs. It goes on when this program ends; `attach` finds it again. When the
   * connection is lost, reading goes on after the last byte that was seen. Rejects as `run` does.
   */
  async start(args: readonly string[], options: StartOptions = {}): Promise<Process> {
    return this.#start(args, options, wholeStdin(options.stdin), isStdinOpen(options));
  }

  /**
   * A process that runs in a sandbox, or ended less than 30 s ago, by its id. `offset`: first byte of output that is
   * wanted; what is no longer kept comes as a gap. Rejects with NotFoundError.
   */
  async attach(processId: string, options: CallControl & { offset?: number; keep?: Size } = {}): Promise<Process> {
    const request = { processId, offset: BigInt(options.offset ?? 0) };
    const stream = this.#client.stream(ProcessService.method.attach, request, controlOf(options));
    const collector = collectorOf(options);
    collector.offset = options.offset ?? 0;
    return Process.begin({ client: this.#client, stream, collector, detachable: true });
  }

  /**
   * Its processes, oldest first: those that run and those that `attach` still finds. Rejects with NotFoundError when
   * the sandbox is gone.
   */
  async *processes(options: CallControl = {}): AsyncGenerator<ProcessInfo, void, undefined> {
    let pageToken = "";
    do {
      const request = { sandboxId: this.id, pageSize: 1000, pageToken };
      const page = await this.#client.unary(ProcessService.method.list, request, controlOf(options));
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
      timeout?: Duration;
      metadata?: Readonly<Record<string, string>>;
      network?: Network | NetworkPolicy;
    },
    options: CallControl = {},
  ): Promise<SandboxInfo> {
    const ttlMs = BigInt(changes.timeout === undefined ? 0 : wholeMilliseconds(changes.timeout, "timeout"));
    const request = { id: this.id, ttlMs, metadata: { ...changes.metadata }, ...networkOf(changes.network) };
    const { sandbox } = await this.#client.unary(SandboxService.method.update, request, controlOf(options));
    return this.#take(sandbox);
  }

  /** Freezes every process in it. Rejects with FailedPreconditionError when it does not run. */
  async pause(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.pause, { id: this.id }, controlOf(options));
    return this.#take(sandbox);
  }

  /** Lets it go on. Rejects with FailedPreconditionError when it is not paused. */
  async resume(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.resume, { id: this.id }, controlOf(options));
    return this.#take(sandbox);
  }

  /**
   * Ends every job in it and removes it; nothing of it is left on the host when this resolves. Nothing happens when it
   * is gone already. Rejects with UnavailableError when the broker cannot be reached.
   */
  async delete(options: CallControl = {}): Promise<void> {
    try {
      await this.#client.unary(SandboxService.method.delete, { id: this.id }, controlOf(options));
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
    stdinOpen: boolean,
  ): Promise<Process> {
    const client = this.#client;
    const request = {
      sandboxId: this.id,
      command: commandOf(args, options, inline, stdinOpen),
      ...limitsOf(options),
    };
    const control = { idempotencyKey: randomBytes(16).toString("hex"), ...controlOf(options) };
    const begin = (): Promise<Process> => {
      const stream = client.stream(ProcessService.method.start, request, control);
      return Process.begin({ client, stream, collector: collectorOf(options), detachable: true });
    };
    const since = performance.now();
    try {
      return await begin();
    } catch (e) {
      if (!(e instanceof ConnectionLostError) || !(await client.isSameBroker(since))) {
        throw e;
      }
    }
    try {
      return await begin();
    } catch (e) {
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
