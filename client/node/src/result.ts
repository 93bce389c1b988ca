// SPDX-License-Identifier: Apache-2.0
// What became of a job: its output, how it ended, and what it used.
import { constants } from "node:os";
import { inspect } from "node:util";
import { Code, StockadeError } from "./errors.js";
import { FigureScope, FigureSource, Outcome as OutcomeNumber } from "./gen/stockade/v1/limits_pb.js";
import type { Simulation } from "./simulations.js";
import type { TransactionOutcome } from "./transactions.js";
import type {
  Bill as BillMessage,
  Figure as FigureMessage,
  LimitHit as LimitHitMessage,
  Result as ResultMessage,
} from "./gen/stockade/v1/limits_pb.js";
import type { Record as RecordMessage } from "./gen/stockade/v1/record_pb.js";
import { plural } from "./units.js";

/**
 * How a job ended. "exited": the main process exited; "signaled": a signal ended it; "limit": a limit ended it;
 * "refused": a policy refused it; "failed": Stockade failed (the job may have run partly); "not_executed": the program
 * could not be executed; "cancelled": the caller cancelled it, or its sandbox was deleted; "unknown": an outcome that
 * this library does not know.
 */
export type Outcome =
  | "unknown"
  | "exited"
  | "signaled"
  | "limit"
  | "refused"
  | "failed"
  | "not_executed"
  | "cancelled";

const outcomes: Readonly<Record<number, Outcome>> = {
  [OutcomeNumber.EXITED]: "exited",
  [OutcomeNumber.SIGNALED]: "signaled",
  [OutcomeNumber.LIMIT]: "limit",
  [OutcomeNumber.REFUSED]: "refused",
  [OutcomeNumber.FAILED]: "failed",
  [OutcomeNumber.NOT_EXECUTED]: "not_executed",
  [OutcomeNumber.CANCELLED]: "cancelled",
};

/** One measured figure, in the unit at the end of its name in the protocol. */
export interface Figure {
  /** The value. */
  value: number;
  /** Source: the kernel's cgroup files, wait4(2), or the broker's own clock and counters. */
  source: "cgroup" | "rusage" | "broker";
  /** What it covers: this job alone, or all jobs of the sandbox; undefined: unknown. */
  scope: "job" | "sandbox" | undefined;
}

const sources: Readonly<Record<number, Figure["source"]>> = {
  [FigureSource.CGROUP]: "cgroup",
  [FigureSource.RUSAGE]: "rusage",
  [FigureSource.BROKER]: "broker",
};

const scopes: Readonly<Record<number, Figure["scope"]>> = {
  [FigureScope.JOB]: "job",
  [FigureScope.SANDBOX]: "sandbox",
};

/** The resources that a job used. Times are in seconds, sizes in bytes. A figure that the host cannot provide is
 * undefined; `unknown` has the reason. */
export interface Bill {
  /** Time from the start of the main process to its end, seconds. */
  wallTime: number | undefined;
  /** Time from the arrival of the request until a sandbox was available, seconds. */
  queueTime: number | undefined;
  /** Time from then until the main process started, seconds. */
  setupTime: number | undefined;
  /** CPU time, user and system together, seconds. */
  cpuTime: number | undefined;
  /** CPU time in user mode, seconds. */
  cpuUser: number | undefined;
  /** CPU time in the kernel, seconds. */
  cpuSystem: number | undefined;
  /** Time that it waited because of its CPU quota, seconds. */
  throttledTime: number | undefined;
  /** Peak memory, bytes. */
  memoryPeak: number | undefined;
  /** Page faults served without I/O. */
  faultsMinor: number | undefined;
  /** Page faults that needed I/O. */
  faultsMajor: number | undefined;
  /** Bytes read from block devices. */
  ioRead: number | undefined;
  /** Bytes written to block devices. */
  ioWrite: number | undefined;
  /** Reads from block devices. */
  ioReadOps: number | undefined;
  /** Writes to block devices. */
  ioWriteOps: number | undefined;
  /** Peak number of processes and threads. */
  pidsPeak: number | undefined;
  /** Voluntary context switches: a task waited. */
  switchesVoluntary: number | undefined;
  /** Involuntary context switches: a task was preempted. */
  switchesInvoluntary: number | undefined;
  /** Number of bytes that it wrote to stdout and stderr. */
  output: number | undefined;
  /** The number of these bytes that the output limit discarded. */
  outputCut: number | undefined;
  /** Every known figure by its name in the protocol ("cpu_user_ns"). */
  figures: Readonly<Record<string, Figure>>;
  /** One line per figure that this host cannot provide, such as "io_read_bytes: no io controller". */
  unknown: readonly string[];
}

/** A limit that was reached. Not every limit ends the job: output is discarded, fork fails with EAGAIN, a write fails
 * with ENOSPC. */
export interface LimitHit {
  /** The limit's name in the protocol, such as "memory_bytes". */
  name: string;
  /** Its value, in the unit at the end of its name. */
  value: number;
  /** The amount beyond the value, in the same unit, or the number of refusals if `count` is true. */
  over: number;
  /** `over` counts refusals. */
  count: boolean;
}

function readFigures(message: BillMessage | undefined): Record<string, Figure> {
  const figures: Record<string, Figure> = {};
  for (const [name, value] of Object.entries(message ?? {}) as [string, unknown][]) {
    const figure = value as Partial<FigureMessage> | undefined;
    const source = sources[figure?.source ?? 0];
    if (figure !== undefined && source !== undefined) {
      const key = name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
      figures[key] = { value: Number(figure.value), source, scope: scopes[figure.scope ?? 0] };
    }
  }
  return figures;
}

/** The bill in a message. */
export function billOf(message: BillMessage | undefined): Bill {
  const figures = readFigures(message);
  const get = (name: string, unit = 1): number | undefined => {
    const figure = figures[name];
    return figure === undefined ? undefined : figure.value / unit;
  };
  const user = get("cpu_user_ns", 1e9);
  const system = get("cpu_system_ns", 1e9);
  return {
    wallTime: get("wall_us", 1e6),
    queueTime: get("queue_us", 1e6),
    setupTime: get("setup_us", 1e6),
    cpuTime: user === undefined || system === undefined ? undefined : user + system,
    cpuUser: user,
    cpuSystem: system,
    throttledTime: get("throttled_ns", 1e9),
    memoryPeak: get("memory_peak_bytes"),
    faultsMinor: get("faults_minor"),
    faultsMajor: get("faults_major"),
    ioRead: get("io_read_bytes"),
    ioWrite: get("io_write_bytes"),
    ioReadOps: get("io_read_ops"),
    ioWriteOps: get("io_write_ops"),
    pidsPeak: get("pids_peak"),
    switchesVoluntary: get("switches_voluntary"),
    switchesInvoluntary: get("switches_involuntary"),
    output: get("output_bytes"),
    outputCut: get("output_cut_bytes"),
    figures,
    unknown: message?.unknown ?? [],
  };
}

function limitHitOf(message: LimitHitMessage): LimitHit {
  const { name, value, over, count } = message;
  return { name, value: Number(value), over: Number(over), count };
}

function signalName(number: number): string {
  const found = Object.entries(constants.signals).find(([, n]) => n === number);
  return found?.[0] ?? `signal ${number}`;
}

/** What was kept of a job's output. */
export interface KeptOutput {
  stdout: Uint8Array;
  stderr: Uint8Array;
  /** Bytes that are missing above. */
  missing: number;
  /** Of those, bytes that no reader has received. */
  cut: number;
}

/** Which job it was. */
export interface JobIdentity {
  args: readonly string[];
  processId: string;
  sandboxId: string;
}

const unnamed: JobIdentity = { args: [], processId: "", sandboxId: "" };
/** Characters of each stream, in what is shown of a result. */
const SHOWN_CHARS = 100;
const COMMAND_CHARS = 200;
/** Of stderr, in the message of a JobError. */
const TAIL_LINES = 20;
const TAIL_CHARS = 2000;

function tail(bytes: Uint8Array, chars: number): string {
  return new TextDecoder().decode(bytes.subarray(Math.max(0, bytes.length - 4 * chars))).slice(-chars);
}

function shownBegin(bytes: Uint8Array): string {
  const text = new TextDecoder().decode(bytes.subarray(0, 4 * SHOWN_CHARS)).slice(0, SHOWN_CHARS);
  return inspect(text) + (Buffer.byteLength(text) < bytes.length ? "..." : "");
}

function shownEnd(bytes: Uint8Array): string {
  const text = tail(bytes, SHOWN_CHARS);
  return (Buffer.byteLength(text) < bytes.length ? "..." : "") + inspect(text);
}

/** A command as a shell would take it, cut after 200 characters. */
function shortened(args: readonly string[]): string {
  const quoted = args.map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", `'"'"'`)}'`));
  const text = quoted.join(" ");
  return text.length <= COMMAND_CHARS ? text : `${text.slice(0, COMMAND_CHARS)}...`;
}

const nothingKept: KeptOutput = { stdout: new Uint8Array(0), stderr: new Uint8Array(0), missing: 0, cut: 0 };

/** The result of a job. A job that fails is not an error of the call: see `outcome`, `ok` and `check()`. */
export class RunResult {
  /** How it ended. */
  readonly outcome: Outcome;
  /** 0 to 255 if it exited or could not be executed (126, 127); otherwise undefined. */
  readonly exitCode: number | undefined;
  /** Number of the signal that ended it, or undefined. */
  readonly signal: number | undefined;
  /** One sentence if it did not simply exit; else "". */
  readonly reason: string;
  /** What it used. */
  readonly bill: Bill;
  /** The limit that ended it, or the first limit that it reached. */
  readonly limitHit: LimitHit | undefined;
  /** Further limits that it reached. */
  readonly limitsAlsoHit: readonly LimitHit[];
  /** The kernel's record (record.proto); undefined if the broker sent none. */
  readonly record: RecordMessage | undefined;
  /** Its stdout (with a terminal: all of its output), as far as it was kept. */
  readonly stdoutBytes: Uint8Array;
  /** Its stderr, as far as it was kept. */
  readonly stderrBytes: Uint8Array;
  /** Number of bytes of output that are missing above: cut by a limit, lost because they were not read in time, or not
   * kept here. */
  readonly outputMissing: number;
  /**
   * The number of these bytes that were cut: the program did not receive them, and did not decline them with `keep: 0`.
   * A job with cut output does not count as a success.
   */
  readonly outputCut: number;
  /** The command, if this program started it; empty after `attach`, and in a list. */
  readonly args: readonly string[];
  /** Id of the process, an opaque text of at most 48 characters; "" if it never started, and in a list. */
  readonly processId: string;
  /** Id of the sandbox that it ran in; "" in the same cases. */
  readonly sandboxId: string;
  /** Of a job with `transaction`: what it changed, and what became of that. */
  transaction: TransactionOutcome | undefined;
  /** Of a job with `simulate`: what it would have changed and sent. */
  simulation: Simulation | undefined;

  constructor(message: ResultMessage, kept: KeptOutput = nothingKept, job: JobIdentity = unnamed) {
    this.outcome = outcomes[message.outcome] ?? "unknown";
    const hasCode = this.outcome === "exited" || this.outcome === "not_executed";
    this.exitCode = hasCode ? message.exitCode : undefined;
    this.signal = message.signal === 0 ? undefined : message.signal;
    this.reason = message.reason;
    this.bill = billOf(message.bill);
    this.limitHit = message.limitHit === undefined ? undefined : limitHitOf(message.limitHit);
    this.limitsAlsoHit = message.limitsAlsoHit.map(limitHitOf);
    this.record = message.record;
    this.stdoutBytes = kept.stdout;
    this.stderrBytes = kept.stderr;
    this.outputMissing = kept.missing;
    this.outputCut = Math.max(kept.cut, this.bill.outputCut ?? 0);
    this.args = job.args;
    this.processId = job.processId;
    this.sandboxId = job.sandboxId;
  }

  /** `stdoutBytes` as text; invalid UTF-8 is replaced by U+FFFD. */
  get stdout(): string {
    return new TextDecoder().decode(this.stdoutBytes);
  }

  /** `stderrBytes` as text; invalid UTF-8 is replaced by U+FFFD. */
  get stderr(): string {
    return new TextDecoder().decode(this.stderrBytes);
  }

  /** True if it exited with code 0 and no output was cut. */
  get ok(): boolean {
    return this.outcome === "exited" && this.exitCode === 0 && this.outputCut === 0;
  }

  /** True if its wall-clock limit (`timeout` of `run`) ended it. */
  get timedOut(): boolean {
    return this.outcome === "limit" && this.limitHit?.name === "wall_ms";
  }

  /** Returns the result itself if it is `ok`, else throws JobError. */
  check(): this {
    if (!this.ok) {
      throw new JobError(this);
    }
    return this;
  }

  /** Such as "limit by SIGKILL, limit memory_bytes=67108864: the job was killed". */
  toString(): string {
    let how: string = this.outcome.replace("_", " ");
    if (this.exitCode !== undefined) {
      how += ` with code ${this.exitCode}`;
    }
    if (this.signal !== undefined) {
      how += ` by ${signalName(this.signal)}`;
    }
    if (this.limitHit !== undefined) {
      const { name, value, over, count } = this.limitHit;
      how += `, limit ${name}=${value}${count ? `, denied ${over} ${plural(over, "time")}` : ""}`;
    }
    if (this.outputCut > 0) {
      const verb = this.outputCut === 1 ? "was" : "were";
      how += `, ${this.outputCut} ${plural(this.outputCut, "byte")} of output ${verb} cut`;
    }
    if (this.reason !== "") {
      how += `: ${this.reason}`;
    }
    if (this.exitCode === 127 && this.args.length === 1 && this.args[0]?.includes(" ") === true) {
      how += ' (one string per argument: ["echo", "hi"], or ["sh", "-c", "echo hi"])';
    }
    return how;
  }

  /** In short, for console.log: how it ended, the begin of its output, and its id. */
  [inspect.custom](): string {
    const stderr = this.stderrBytes.length === 0 ? "" : `, stderr=${shownEnd(this.stderrBytes)}`;
    const id = this.processId === "" ? "" : `, id=${this.processId}`;
    return `<RunResult ${this.toString()}, stdout=${shownBegin(this.stdoutBytes)}${stderr}${id}>`;
  }
}

/** A job failed, or its output was cut, and the call had `check`. Code ABORTED. */
export class JobError extends StockadeError {
  /** The job's result: outcome, exit code, limit, output, bill. */
  readonly result: RunResult;
  /** The command; empty if another program started it. */
  readonly command: readonly string[];
  /** The end of its stderr: the last 20 lines, at most 2,000 characters. */
  readonly stderr: string;

  constructor(result: RunResult) {
    const stderr = tail(result.stderrBytes, TAIL_CHARS).trimEnd().split("\n").slice(-TAIL_LINES).join("\n");
    const command = result.args.length === 0 ? "" : `${shortened(result.args)}: `;
    super(Code.ABORTED, `${command}${result.toString()}${stderr === "" ? "" : `\n${stderr}`}`, {
      reason: "JOB_ENDED_BADLY",
    });
    this.result = result;
    this.command = result.args;
    this.stderr = stderr;
  }
}
