// SPDX-License-Identifier: Apache-2.0
// Jobs: what a command is, one-shot runs, and reading a job to its end.
import { inspect } from "node:util";
import { create } from "@bufbuild/protobuf";
import { callback, optionalText, wrongType } from "./fields.js";
import { simulateOf } from "./simulations.js";
import type { Simulate } from "./simulations.js";
import type { TransactionPolicy } from "./transactions.js";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "./call.js";
import { Client } from "./client.js";
import { FailedPreconditionError, NotFoundError } from "./errors.js";
import { Collector, Lines } from "./events.js";
import type { LineCallback, Output } from "./events.js";
import { ProcessService, CommandSchema } from "./gen/stockade/v1/process_service_pb.js";
import { limitsMessage } from "./limits.js";
import type { Limits } from "./limits.js";
import { networkOf } from "./network.js";
import type { Network, NetworkPolicy } from "./network.js";
import { Process, splitStdin } from "./process.js";
import type { Stdin, TerminalSize } from "./process.js";
import type { RunResult } from "./result.js";
import { badArgument, knownOptions, parseSize, textsOf } from "./units.js";
import type { Duration, Size } from "./units.js";

/** Options of a command. */
export interface CommandOptions {
  /** Variables to add to the template's environment, or to replace in it. */
  env?: Readonly<Record<string, string>>;
  /** Absolute path of the working directory inside the sandbox. Default: the template's. */
  cwd?: string;
  /** Bytes for its stdin. Default: none; a reader gets end-of-file. */
  stdin?: Stdin;
  /** Run it in a terminal of this size; stdout and stderr are then one stream. */
  terminal?: TerminalSize;
  /**
   * Wall-clock limit of the job: seconds or "1.5m". The broker kills a job that exceeds it (`timedOut` in the result).
   * Default: the template's; none for `Sandbox.start`.
   */
  timeout?: Duration;
  /** Limits of the job. */
  limits?: Limits;
  /** Maximum size of stdout and of stderr in the result. Default: "64M"; 0: nothing. */
  keep?: Size;
}

/** Options of the call itself. See `CallOptions`. */
export type CallControl = Pick<
  CallOptions,
  "deadline" | "signal" | "idempotencyKey" | "approval" | "approvalWait" | "policy"
>;

/** For `Sandbox.start`. */
export interface StartOptions extends CommandOptions, CallControl {
  /** Leave stdin open for `Process.sendStdin` after `stdin`. Default: only with a terminal. */
  stdinOpen?: boolean;
}

/** Options of a job that is waited for. */
export interface RunOptions extends CommandOptions, CallControl {
  /** Called with each line of stdout as it arrives, without its line end. If it returns a promise, the library waits
   * for it. */
  onStdout?: LineCallback;
  /** The same for stderr. */
  onStderr?: LineCallback;
  /** Called with each piece of output as it arrives, as bytes. */
  onOutput?: (output: Output) => unknown;
  /** Throw JobError if the exit code is not 0 or output was cut. */
  check?: boolean;
  /** Let nothing of the job stay or leave, and say in `RunResult.simulation` what it would have done. In `Sandbox.run`
   * it runs in a fork of the sandbox. An object: these destinations answer with these bytes. */
  simulate?: Simulate;
}

/** Options of `Sandbox.run`. */
export interface SandboxRunOptions extends RunOptions {
  /** Write to a transaction: "ask" leaves it open, "on-success" commits it after exit code 0 and discards it otherwise
   * (`RunResult.transaction`). */
  transaction?: TransactionPolicy;
}

/** Options of the sandbox of a single run. */
export interface FreshSandbox {
  /** Name of the template. Default: "default". */
  template?: string;
  /** Network policy. Default: the template's. */
  network?: Network | NetworkPolicy;
  /** Labels: up to 32, names up to 64 bytes, values up to 256. */
  metadata?: Readonly<Record<string, string>>;
  /** Name of the sandbox, unique among the caller's sandboxes. */
  name?: string;
  /**
   * Volumes to mount, from paths to names: `{ "/data": "mine", "/models": "models:ro" }`. Instead of a name: the path
   * of a folder of the broker's host that the template lists.
   */
  volumes?: Readonly<Record<string, string>>;
  /** The client to use. Default: `defaultClient()`, for STOCKADE_ADDRESS and STOCKADE_TOKEN. */
  client?: Client;
}

const CONTROL = {
  deadline: true,
  signal: true,
  idempotencyKey: true,
  approval: true,
  approvalWait: true,
  policy: true,
} as const;
const COMMAND = {
  env: true,
  cwd: true,
  stdin: true,
  terminal: true,
  timeout: true,
  limits: true,
  keep: true,
  ...CONTROL,
} as const;
const FRESH = { template: true, network: true, metadata: true, name: true, volumes: true, client: true } as const;
/** @internal What each takes: options of any other name are refused. */
export const OPTIONS = {
  control: CONTROL,
  fresh: FRESH,
  start: { ...COMMAND, stdinOpen: true },
  run: { ...COMMAND, onStdout: true, onStderr: true, onOutput: true, check: true, simulate: true },
} as const;

let shared: Client | undefined;

/** The client that is used when `client` is not set. It is created at its first use, and again after it was closed. */
export function defaultClient(): Client {
  if (shared === undefined || shared.closed) {
    shared = new Client();
  }
  return shared;
}

/** @internal Checks the options of a run: their names, and what is called. */
export function checkRun<T extends RunOptions>(options: T, names: Readonly<Record<keyof T, true>>): void {
  knownOptions(options, names);
  callback(options.onStdout, "onStdout");
  callback(options.onStderr, "onStderr");
  callback(options.onOutput, "onOutput");
}

/** @internal The client of options, or the default one. InvalidArgumentError: it is no client. */
export function chosenClient(client: Client | undefined): Client {
  const given: unknown = client ?? defaultClient();
  if (typeof given !== "object" || given === null || !("unary" in given)) {
    throw wrongType(given, "client", "a Client");
  }
  return given as Client;
}

/** @internal The messages of volumes to mount. */
export function mountsOf(
  volumes: Readonly<Record<string, string>> | undefined,
): { volume: string; path: string; readOnly: boolean }[] {
  return Object.entries(textsOf(volumes, "volumes")).map(([path, text]) => {
    const [volume = "", mode = "rw", ...more] = text.split(":");
    if (more.length > 0 || !["ro", "rw"].includes(mode)) {
      throw badArgument(`volumes[${JSON.stringify(path)}]`, "is a name, or a name and :ro");
    }
    return { volume, path, readOnly: mode === "ro" };
  });
}

/** @internal The message of a command. */
export function commandOf(
  args: readonly string[],
  options: CommandOptions,
  inline: Uint8Array,
  stdinOpen: boolean,
): MessageInitShape<typeof CommandSchema> {
  const given: unknown = args;
  if (!(given instanceof Array) || given.length === 0) {
    throw badArgument("args", 'a command is a list of strings, such as ["python3", "-c", "print(1)"]');
  }
  const bad = args.findIndex((a) => typeof a !== "string");
  if (bad >= 0) {
    throw badArgument(`args[${bad}]`, `${inspect(args[bad])} is not a string`);
  }
  return create(CommandSchema, {
    args: [...args],
    env: Object.entries(textsOf(options.env, "env")).map(([name, value]) => ({ name, value })),
    workdir: optionalText(options.cwd, "cwd"),
    stdin: inline,
    stdinOpen,
    ...(options.terminal === undefined
      ? {}
      : { terminal: { ...knownOptions(options.terminal, { rows: true, columns: true }, "terminal") } }),
  });
}

/** @internal The limits of a job, ready to be spread into a request. */
export function limitsOf(options: CommandOptions): { limits: ReturnType<typeof limitsMessage> } | undefined {
  const limits = { ...options.limits, ...(options.timeout === undefined ? {} : { timeout: options.timeout }) };
  return Object.keys(limits).length === 0 ? undefined : { limits: limitsMessage(limits) };
}

/** @internal The call alone. */
export function controlOf(options: CallControl): CallOptions {
  const { deadline, signal, idempotencyKey, approval, approvalWait, policy } = options;
  return {
    ...(deadline === undefined ? {} : { deadline }),
    ...(signal === undefined ? {} : { signal }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    ...(approval === undefined ? {} : { approval }),
    ...(approvalWait === undefined ? {} : { approvalWait }),
    ...(policy === undefined ? {} : { policy }),
  };
}

/** @internal The same of options that have nothing else. */
export function controlOnly(options: CallControl): CallOptions {
  return controlOf(knownOptions(options, OPTIONS.control));
}

/** @internal What keeps its output. */
export function collectorOf(options: CommandOptions, args: readonly string[] = []): Collector {
  return new Collector(parseSize(options.keep ?? "64M", "keep"), args);
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
  const given = {
    stdout: options.onOutput !== undefined || options.onStdout !== undefined,
    stderr: options.onOutput !== undefined || options.onStderr !== undefined,
  };
  for await (const event of process.read(given)) {
    if (event.type !== "gap") {
      await options.onOutput?.(event);
      await lines[event.type]?.feed(event.data, false);
    }
  }
  await lines.stdout?.feed(new Uint8Array(0), true);
  await lines.stderr?.feed(new Uint8Array(0), true);
  return process.wait();
}

/** @internal Reads the output and feeds stdin side by side; when either fails, the process is not left behind. */
export async function finish(
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

/** Options of `run`. */
export interface OneShotOptions extends RunOptions, FreshSandbox {}

/** Options of `start`. */
export interface OneShotStartOptions extends StartOptions, FreshSandbox {}

/**
 * Runs one job in a fresh sandbox, which is destroyed afterwards. `args` is the program and its arguments. A job that
 * fails is not an error of the call: see its result. Rejects with InvalidArgumentError (a field or a limit is out of
 * its bounds), ResourceExhaustedError (a quota is exhausted), CancelledError, DeadlineExceededError,
 * ConnectionLostError (the broker cancels the job; it is never run again), and JobError with `check`.
 *
 * @example
 * const r = await run(["python3", "-c", "print(6 * 7)"], { limits: { memory: "256M" }, timeout: 5 });
 * console.log(r.stdout, r.exitCode, r.bill.cpuTime);
 */
export async function run(args: readonly string[], options: OneShotOptions = {}): Promise<RunResult> {
  checkRun(options, { ...OPTIONS.run, ...OPTIONS.fresh });
  const { inline, more } = splitStdin(options.stdin);
  const process = await startOneShot(args, options, inline, more !== undefined);
  return finish(process, options, more);
}

/**
 * Starts one job in a fresh sandbox and returns a `Process`, for streaming, stdin and terminals. When its reader
 * disconnects, the job is cancelled. Rejects like `run`. Only `run` accepts `stdin` of more than 1 MiB or in pieces;
 * use `Process.sendStdin` here.
 */
export async function start(args: readonly string[], options: OneShotStartOptions = {}): Promise<Process> {
  knownOptions(options, { ...OPTIONS.start, ...OPTIONS.fresh });
  return startOneShot(args, options, wholeStdin(options.stdin), isStdinOpen(options));
}

/** @internal */
export function isStdinOpen(options: StartOptions): boolean {
  return options.stdinOpen ?? options.terminal !== undefined;
}

/** @internal What fits into the request. */
export function wholeStdin(stdin: Stdin | undefined): Uint8Array {
  const { inline, more } = splitStdin(stdin);
  if (more !== undefined) {
    throw badArgument("stdin", "more than 1 MiB, or in pieces: use stdinOpen and Process.sendStdin");
  }
  return inline;
}

async function startOneShot(
  args: readonly string[],
  options: CommandOptions & CallControl & FreshSandbox & Pick<RunOptions, "simulate">,
  inline: Uint8Array,
  stdinOpen: boolean,
): Promise<Process> {
  const client = chosenClient(options.client);
  const request = {
    command: commandOf(args, options, inline, stdinOpen),
    template: optionalText(options.template, "template"),
    ...limitsOf(options),
    ...networkOf(options.network),
    metadata: textsOf(options.metadata, "metadata"),
    name: optionalText(options.name, "name"),
    volumes: mountsOf(options.volumes),
    ...simulateOf(options.simulate),
  };
  const collector = collectorOf(options, args);
  const stream = client.stream(ProcessService.method.run, request, controlOf(options));
  return Process.begin({ client, stream, collector, detachable: false });
}
