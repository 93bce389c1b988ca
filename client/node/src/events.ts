// SPDX-License-Identifier: Apache-2.0
// What a process did, in order, and how the pieces become a `RunResult`.
import type { TransactionOutcome as OutcomeMessage } from "./gen/stockade/v1/transaction_service_pb.js";
import type { SimulationOutcome } from "./gen/stockade/v1/simulation_pb.js";
import { simulationOf } from "./simulations.js";
import { outcomeOf } from "./transactions.js";
import { ProtocolError } from "./errors.js";
import { Stream } from "./gen/stockade/v1/process_service_pb.js";
import type { ProcessEvent as EventMessage } from "./gen/stockade/v1/process_service_pb.js";
import { RunResult } from "./result.js";

/** A piece of output. */
export class Output {
  /** "stdout" (also for the output of a terminal) or "stderr". */
  readonly type: "stdout" | "stderr";
  /** The bytes, at most 64 KiB. They may end in the middle of a line or a character. */
  readonly data: Uint8Array;
  /** Offset of the first byte, counted from the start over stdout and stderr together. */
  readonly offset: number;

  constructor(type: "stdout" | "stderr", data: Uint8Array, offset: number) {
    this.type = type;
    this.data = data;
    this.offset = offset;
  }

  /** The bytes as text; invalid UTF-8 is replaced by U+FFFD. */
  get text(): string {
    return new TextDecoder().decode(this.data);
  }
}

/** Missing output: it was not read in time, or a limit cut it. */
export interface Gap {
  /** Always "gap". */
  readonly type: "gap";
  /** Offset of the first missing byte. */
  readonly offset: number;
  /** Number of missing bytes. */
  readonly length: number;
  /** True if the output limit cut it, and cuts all further output. */
  readonly limit: boolean;
}

/** An item of the iteration over a `Process`. */
export type ProcessEvent = Output | Gap;

/** Called with each line, without its line end. If it returns a promise, the library waits for it. */
export type LineCallback = (line: string) => unknown;

/** A longer line is passed on in pieces. Characters. */
const LINE_MAX = 64 * 1024;

/** Turns pieces of output into lines of text for a callback. */
export class Lines {
  readonly #callback: LineCallback;
  readonly #decoder = new TextDecoder();
  #rest = "";

  constructor(callback: LineCallback) {
    this.#callback = callback;
  }

  async feed(data: Uint8Array, final: boolean): Promise<void> {
    const lines = (this.#rest + this.#decoder.decode(data, { stream: !final })).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      await this.#callback(line.endsWith("\r") ? line.slice(0, -1) : line);
    }
    if (this.#rest !== "" && (final || this.#rest.length > LINE_MAX)) {
      const rest = this.#rest;
      this.#rest = "";
      await this.#callback(rest);
    }
  }
}

interface Kept {
  chunks: Uint8Array[];
  bytes: number;
}

function join(kept: Kept): Uint8Array {
  return kept.chunks.length === 1 ? (kept.chunks[0] as Uint8Array) : new Uint8Array(Buffer.concat(kept.chunks));
}

function safeNumber(value: bigint): number {
  const n = Number(value);
  if (!Number.isSafeInteger(n)) {
    throw new ProtocolError(`the broker sent an impossible offset: ${value}`);
  }
  return n;
}

/** Which streams the program gets as they come, beside what the result keeps. */
export interface Given {
  stdout: boolean;
  stderr: boolean;
}

const nothingGiven: Given = { stdout: false, stderr: false };

/** Folds the events of one process into its identity, its output and its result. */
export class Collector {
  /** The command, where this program started it. */
  readonly args: readonly string[];
  /** "" until the process is known to have started. */
  processId = "";
  sandboxId = "";
  pid = 0;
  /** Of the next byte that is expected. */
  offset = 0;
  /** Set when it has ended. */
  result: RunResult | undefined;
  readonly #keep: number;
  readonly #kept = { stdout: { chunks: [], bytes: 0 } as Kept, stderr: { chunks: [], bytes: 0 } as Kept };
  #over = 0; // beyond what is kept
  #unseen = 0; // of those, bytes that no reader has received, but may request
  #gone = 0;
  #cut = 0; // by the limit on output: the bill knows the whole sum

  /** `keep`: bytes of stdout and of stderr that the result holds. */
  constructor(keep: number, args: readonly string[] = []) {
    this.#keep = keep;
    this.args = [...args];
  }

  /**
   * Takes one event and gives it where a reader wants to see it. `given`: the program gets it. ProtocolError: an order
   * that makes no sense.
   */
  feed(message: EventMessage | undefined, given: Given = nothingGiven): ProcessEvent | undefined {
    const event = message?.event;
    if (this.result !== undefined) {
      throw new ProtocolError("the broker sent an event of a process that has ended");
    }
    switch (event?.case) {
      case "started":
        this.#started(event.value.processId, event.value.sandboxId, event.value.pid);
        return undefined;
      case "exited":
        this.#exited(event.value.result, event.value.transaction, event.value.simulation);
        return undefined;
      case "output":
        this.#needStarted();
        return this.#output(event.value.stream, event.value.data, safeNumber(event.value.offset), given);
      case "gap":
        this.#needStarted();
        return this.#gap(safeNumber(event.value.offset), safeNumber(event.value.bytes), event.value.limit);
      default: // an event of a later version
        return undefined;
    }
  }

  #needStarted(): void {
    if (this.processId === "") {
      throw new ProtocolError("the broker sent output of a process before it started");
    }
  }

  #started(processId: string, sandboxId: string, pid: number): void {
    const other = this.processId !== "" && processId !== this.processId;
    if (other || !/^([a-z0-9]{1,15}-)?[0-9a-f]{32}$/.test(processId)) {
      throw new ProtocolError(`the broker sent ${JSON.stringify(processId)} as the id of a process`);
    }
    this.processId = processId;
    this.sandboxId = sandboxId;
    this.pid = pid;
  }

  #output(stream: Stream, bytes: Uint8Array, offset: number, given: Given): Output | undefined {
    const type = stream === Stream.STDERR ? "stderr" : "stdout";
    const seen = Math.max(0, this.offset - offset); // before the connection was lost
    const data = seen > 0 ? bytes.subarray(seen) : bytes;
    if (data.length === 0) {
      return undefined;
    }
    this.offset = offset + seen + data.length;
    const kept = this.#kept[type];
    const part = data.subarray(0, Math.max(0, this.#keep - kept.bytes));
    if (part.length > 0) {
      kept.chunks.push(part);
      kept.bytes += part.length;
    }
    this.#over += data.length - part.length;
    this.#unseen += given[type] || this.#keep === 0 ? 0 : data.length - part.length;
    return new Output(type, data, offset + seen);
  }

  #gap(offset: number, length: number, limit: boolean): Gap {
    this.offset = Math.max(this.offset, offset + length);
    if (limit) {
      this.#cut += length;
    } else {
      this.#gone += length;
    }
    return { type: "gap", offset, length, limit };
  }

  #exited(
    result: ConstructorParameters<typeof RunResult>[0] | undefined,
    outcome: OutcomeMessage | undefined,
    simulation: SimulationOutcome | undefined,
  ): void {
    if (result === undefined) {
      throw new ProtocolError("the broker sent the end of a process without its result");
    }
    const { stdout, stderr } = this.#kept;
    const gone = this.#gone + Math.max(this.#cut, Number(result.bill?.outputCutBytes?.value ?? 0n));
    const missing = gone + this.#over;
    const cut = gone + this.#unseen;
    this.result = new RunResult(result, { stdout: join(stdout), stderr: join(stderr), missing, cut }, this);
    this.result.transaction = outcome === undefined ? undefined : outcomeOf(outcome);
    this.result.simulation = simulationOf(simulation);
  }
}
