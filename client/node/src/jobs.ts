// SPDX-License-Identifier: Apache-2.0
// Jobs: what a command is, one-shot runs, and reading a job to its end.
import { inspect } from "node:util";
import { create } from "@bufbuild/protobuf";
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
  /**
   * Wall-clock limit of the job: seconds or "1.5m". It ends the job, and the result says so (`timedOut`). Default: the
   * template's; none for `Sandbox.start`.
   */
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
  /** Throw JobError unless the job exits with code 0 and no output was cut. */
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

const CONTROL = { deadline: true, signal: true, idempotencyKey: true } as const;
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
const FRESH = { template: true, network: true, metadata: true, name: true, client: true } as const;
/** @internal What each takes: options of any other name are refused. */
export const OPTIONS = {
  control: CONTROL,
  fresh: FRESH,
  start: { ...COMMAND, stdinOpen: true },
  run: { ...COMMAND, onStdout: true, onStderr: true, onOutput: true, check: true },
} as const;

let shared: Client | undefined;

/** The client that all share who name none. It is made when it is first needed, and again when it was closed. */
export function defaultClient(): Client {
  if (shared === undefined || shared.closed) {
    shared = new Client();
  }
  return shared;
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
    throw badArgument(`args[${bad}]`, `${inspect(args[bad])} is no text`);
  }
  return create(CommandSchema, {
    args: [...args],
    env: Object.entries(textsOf(options.env, "env")).map(([name, value]) => ({ name, value })),
    workdir: options.cwd ?? "",
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
export function controlOf({ deadline, signal, idempotencyKey }: CallControl): CallOptions {
  return {
    ...(deadline === undefined ? {} : { deadline }),
    ...(signal === undefined ? {} : { signal }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
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
  knownOptions(options, { ...OPTIONS.run, ...OPTIONS.fresh });
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
    metadata: textsOf(options.metadata, "metadata"),
    name: options.name ?? "",
  };
  const collector = collectorOf(options, args);
  const stream = client.stream(ProcessService.method.run, request, controlOf(options));
  return Process.begin({ client, stream, collector, detachable: false });
}
