// SPDX-License-Identifier: Apache-2.0
// A process that runs: its output as an async iterator, its stdin, its signals, its end.
//
// A process in a sandbox continues when the connection is lost; reading continues after the last received byte, on a
// new connection. A one-shot run does not: the broker ends it when its caller disconnects.
import { constants } from "node:os";
import { inspect } from "node:util";
import type { CallOptions } from "./call.js";
import type { Client } from "./client.js";
import {
  BrokerUnreachableError,
  Code,
  ConnectionLostError,
  DeadlineExceededError,
  FailedPreconditionError,
  NotFoundError,
  ProtocolError,
} from "./errors.js";
import { Collector } from "./events.js";
import type { Given, ProcessEvent } from "./events.js";
import { utf8 } from "./fields.js";
import { ProcessService } from "./gen/stockade/v1/process_service_pb.js";
import type { ProcessEvent as EventMessage } from "./gen/stockade/v1/process_service_pb.js";
import { untilTaken } from "./queue.js";
import type { RunResult } from "./result.js";
import { badArgument, knownOptions, parseDuration } from "./units.js";
import type { Duration } from "./units.js";

/** Bytes of one write to stdin. */
const INPUT_BYTES_MAX = 64 * 1024;
/** Bytes of stdin that travel with the request. */
export const STDIN_INLINE_MAX = 1024 * 1024;
/** Maximum number of lost connections in a row after which reading continues without any new byte. */
const REATTACH_MAX = 5;

/** Input for stdin: text, bytes, or an iterable of these, such as a Readable. */
export type Stdin =
  | string
  | Uint8Array
  | Iterable<string | Uint8Array>
  | AsyncIterable<string | Uint8Array>;

/** Size of a terminal. */
export interface TerminalSize {
  /** Rows, 1 to 4,096. */
  rows: number;
  /** Columns, 1 to 4,096. */
  columns: number;
}

/** A stream of messages that hold events: that of Run, Start or Attach. */
export interface EventStream {
  next(): Promise<IteratorResult<{ event?: EventMessage | undefined }, undefined>>;
  cancel(): void;
}


/** Number of a signal by its name or number. InvalidArgumentError: there is none. */
export function signalNumber(signal: NodeJS.Signals | number): number {
  const number = typeof signal === "number" ? signal : constants.signals[signal];
  if (!Number.isInteger(number) || number < 1 || number > 64) {
    throw badArgument("signal", `${String(signal)} is none`);
  }
  return number;
}

/** The parts of its starter that a process needs. */
export interface ProcessSetup {
  client: Client;
  stream: EventStream;
  collector: Collector;
  /** It continues without a reader, and can be attached to again. */
  detachable: boolean;
}

/**
 * A process in a sandbox. Iterate over it to read its output. `Sandbox.start`, `Sandbox.attach` and `start` return it.
 * With `await using` it is killed at the end of the block. Its methods reject with a StockadeError.
 */
export class Process implements AsyncIterable<ProcessEvent>, AsyncDisposable {
  readonly #client: Client;
  readonly #collector: Collector;
  readonly #detachable: boolean;
  #stream: EventStream;
  #reading: Promise<unknown> = Promise.resolve();
  #tries = 0;
  #lost: ConnectionLostError | undefined; // not yet read on after it
  #detached = false;
  #failed: { error: unknown } | undefined;

  private constructor(setup: ProcessSetup) {
    this.#client = setup.client;
    this.#collector = setup.collector;
    this.#detachable = setup.detachable;
    this.#stream = setup.stream;
  }

  /** @internal Waits until the process runs, or has ended without running. */
  static async begin(setup: ProcessSetup): Promise<Process> {
    const made = new Process(setup);
    const { collector } = setup;
    while (collector.processId === "" && collector.result === undefined) {
      const next = await setup.stream.next();
      if (next.done === true) {
        throw new ProtocolError("the broker ended the stream of a process before it began");
      }
      collector.feed(next.value.event);
    }
    return made;
  }

  /** An opaque text of at most 48 characters; "" if the job was refused before it started. */
  get id(): string {
    return this.#collector.processId;
  }

  /** The sandbox that it runs in. */
  get sandboxId(): string {
    return this.#collector.sandboxId;
  }

  /** Its pid inside the sandbox. */
  get pid(): number {
    return this.#collector.pid;
  }

  /** The result; undefined until the end of the output was read. */
  get result(): RunResult | undefined {
    return this.#collector.result;
  }

  /**
   * Its output, as it comes. The job (or the broker, which keeps the last MiB) waits for the reader. Leaving the loop
   * leaves the process as it is: it can be iterated again, or waited for. Rejects with the call's StockadeError.
   */
  [Symbol.asyncIterator](): AsyncGenerator<ProcessEvent, void, undefined> {
    return this.read({ stdout: true, stderr: true });
  }

  /** @internal The same for a reader that passes only these streams to the program. */
  async *read(given: Given): AsyncGenerator<ProcessEvent, void, undefined> {
    for (;;) {
      const event = await this.#next(given);
      if (event === undefined) {
        return;
      }
      yield event;
    }
  }

  /**
   * Reads the rest of the output and returns the result, with the output that was kept. Rejects with the call's
   * StockadeError; with FailedPreconditionError after detach(); with DeadlineExceededError after `timeout` (seconds or
   * "500ms"): then the process continues, and you can call wait() again.
   */
  async wait(options: { timeout?: Duration } = {}): Promise<RunResult> {
    knownOptions(options, { timeout: true });
    if (options.timeout === undefined) {
      return this.#wait();
    }
    const ms = parseDuration(options.timeout, "timeout");
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const text = `process ${this.id}: not over after ${ms} ms`;
        reject(new DeadlineExceededError(Code.DEADLINE_EXCEEDED, text));
      }, ms);
    });
    const ended = this.#wait();
    ended.catch(() => undefined); // reported by the next wait() if this one was late
    try {
      return await Promise.race([ended, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #wait(): Promise<RunResult> {
    while ((await this.#next()) !== undefined) {
      // what is worth keeping is kept by the collector
    }
    return this.#collector.result as RunResult;
  }

  /**
   * Writes to its stdin or terminal; resolves when the broker has accepted all bytes. Waits while the queue is full
   * (256 KiB). Rejects with FailedPreconditionError if stdin is closed or the job has ended.
   */
  async sendStdin(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    const bytes = typeof data === "string" ? utf8(data, "data") : data;
    if (!(bytes instanceof Uint8Array)) {
      throw badArgument("stdin", `${inspect(bytes)} is neither text nor a Uint8Array`);
    }
    for (let at = 0; at < bytes.length; at += INPUT_BYTES_MAX) {
      await this.#input(bytes.subarray(at, at + INPUT_BYTES_MAX), options);
    }
  }

  /**
   * Closes its stdin after the bytes that were written. On a terminal: sends end-of-file (^D). Rejects with
   * NotFoundError if it ended more than 30 s ago.
   */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.#client.unary(ProcessService.method.closeInput, { processId: this.id }, options);
  }

  /**
   * Sends a signal (default: "SIGTERM") to its main process, or with `group` to its process group. Rejects with
   * NotFoundError or FailedPreconditionError if it has ended.
   */
  async signal(
    signal: NodeJS.Signals | number = "SIGTERM",
    options: CallOptions & { group?: boolean } = {},
  ): Promise<void> {
    const { group = false, ...call } = options;
    const request = { processId: this.id, signal: signalNumber(signal), group };
    await this.#client.unary(ProcessService.method.signal, request, call);
  }

  /**
   * Kills its process group with SIGKILL. Does nothing if it has ended already. Rejects with UnavailableError if the
   * broker cannot be reached.
   */
  async kill(): Promise<void> {
    if (this.result !== undefined || this.id === "") {
      return;
    }
    try {
      await this.signal("SIGKILL", { group: true });
    } catch (e) {
      if (!(e instanceof NotFoundError || e instanceof FailedPreconditionError)) {
        throw e;
      }
    }
  }

  /** Changes the size of its terminal. Rejects with FailedPreconditionError if it has no terminal. */
  async resize(rows: number, columns: number, options: CallOptions = {}): Promise<void> {
    const request = { processId: this.id, size: { rows, columns } };
    await this.#client.unary(ProcessService.method.resize, request, options);
  }

  /**
   * Stops reading. A process in a sandbox keeps running, and `Sandbox.attach` finds it again by its id; a single run is
   * cancelled.
   */
  detach(): void {
    this.#detached = true;
    this.#stream.cancel();
  }

  /** In short, for console.log: its id, and how it ended. */
  [inspect.custom](): string {
    const how = this.result === undefined ? `pid ${this.pid}` : this.result.toString();
    return `<Process ${this.id === "" ? "never started" : this.id} ${how}>`;
  }

  /** Kills it where it still runs, and stops reading: for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.result === undefined && !this.#detached) {
      if (this.#detachable && this.id !== "") {
        await this.kill();
      }
      this.detach();
    }
  }

  // Readers take turns: each gets the next event.
  #next(given?: Given): Promise<ProcessEvent | undefined> {
    const turn = this.#reading.then(() => this.#read(given));
    this.#reading = turn.catch(() => undefined);
    return turn;
  }

  async #read(given?: Given): Promise<ProcessEvent | undefined> {
    if (this.#failed !== undefined) {
      throw this.#failed.error;
    }
    try {
      while (this.#collector.result === undefined) {
        const event = this.#collector.feed(await this.#message(), given);
        if (event !== undefined) {
          this.#tries = 0;
          return event;
        }
      }
      return undefined;
    } catch (e) {
      this.#failed = { error: e };
      this.#stream.cancel();
      throw e;
    }
  }

  async #message(): Promise<EventMessage | undefined> {
    for (;;) {
      try {
        const next = await this.#stream.next();
        if (next.done !== true) {
          this.#lost = undefined;
          return next.value.event;
        }
      } catch (e) {
        this.#reattach(e);
        continue;
      }
      if (this.#detached) {
        const text = `process ${this.id}: detached, its output is no longer read`;
        throw new FailedPreconditionError(Code.FAILED_PRECONDITION, text);
      }
      throw new ProtocolError("the broker ended the stream of a process without its result");
    }
  }

  #reattach(error: unknown): void {
    if (error instanceof NotFoundError && this.#lost !== undefined) {
      throw this.#lost; // another broker answers
    }
    const lost = error instanceof ConnectionLostError || error instanceof BrokerUnreachableError;
    if (error instanceof ConnectionLostError) {
      this.#lost ??= error;
    }
    if (!lost || !this.#detachable || this.id === "" || ++this.#tries > REATTACH_MAX) {
      throw error;
    }
    const request = { processId: this.id, offset: BigInt(this.#collector.offset) };
    this.#stream = this.#client.stream(ProcessService.method.attach, request);
  }

  async #input(data: Uint8Array, options: CallOptions): Promise<void> {
    const call = (): Promise<unknown> =>
      this.#client.unary(ProcessService.method.input, { processId: this.id, data }, options);
    await (options.idempotencyKey === undefined ? untilTaken(call) : call());
  }
}

/** Pieces of stdin after the first `inline` bytes of text or bytes that are there already. */
export function splitStdin(stdin: Stdin | undefined): {
  inline: Uint8Array;
  more: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array> | undefined;
} {
  if (stdin === undefined || typeof stdin === "string" || stdin instanceof Uint8Array) {
    const bytes = typeof stdin === "string" ? utf8(stdin, "stdin") : (stdin ?? new Uint8Array(0));
    const rest = bytes.subarray(STDIN_INLINE_MAX);
    return { inline: bytes.subarray(0, STDIN_INLINE_MAX), more: rest.length > 0 ? [rest] : undefined };
  }
  const given: unknown = stdin;
  if (typeof given !== "object" || given === null || !(Symbol.iterator in given || Symbol.asyncIterator in given)) {
    throw badArgument("stdin", `${inspect(stdin)} is neither text, a Uint8Array, nor pieces of these`);
  }
  return { inline: new Uint8Array(0), more: stdin };
}
