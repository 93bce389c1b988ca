// SPDX-License-Identifier: Apache-2.0
// Many jobs at once. The jobs go to the broker as far as its window permits: jobs that it accepted and whose results
// this program has not confirmed. A result is confirmed when the program asks for the one after it. After a lost
// connection the batch goes on where it was; no job is executed twice.
import { randomBytes } from "node:crypto";
import { create, toBinary } from "@bufbuild/protobuf";
import type { Client } from "./client.js";
import {
  Code,
  ConnectionLostError,
  DeadlineExceededError,
  NotFoundError,
  ProtocolError,
  UnavailableError,
} from "./errors.js";
import type { StockadeError } from "./errors.js";
import { optionalText, textOf, wrongType } from "./fields.js";
import { BatchJobSchema, BatchReset, ProcessService, Stream } from "./gen/stockade/v1/process_service_pb.js";
import type {
  BatchJob as JobMessage,
  RunBatchResponse,
  RunBatchResponse_Finished as Finished,
} from "./gen/stockade/v1/process_service_pb.js";
import { commandOf, chosenClient, limitsOf, mountsOf, wholeStdin } from "./jobs.js";
import type { Limits } from "./limits.js";
import { networkOf } from "./network.js";
import type { Network, NetworkPolicy } from "./network.js";
import { RunResult } from "./result.js";
import type { MessageStream } from "./stream.js";
import { badArgument, knownOptions, lifetimeMs } from "./units.js";
import type { Duration } from "./units.js";

/** Jobs, and bytes of them, in one request. */
const ADD_JOBS_MAX = 256;
const ADD_BYTES_MAX = 2 * 1024 * 1024;
/** A batch that is lost is resumed at most this often without a message in between. */
const RESUME_MAX = 5;

/** One job of a batch. */
export interface BatchJob {
  /** Program and arguments. */
  args: readonly string[];
  /** Any text of at most 128 bytes; it comes back with the result. */
  key?: string;
  /** Environment variables. */
  env?: Readonly<Record<string, string>>;
  /** Working directory. */
  cwd?: string;
  /** Its whole stdin, at most 1 MiB. */
  stdin?: string | Uint8Array;
  /** Limits; those that are not set come from the batch. */
  limits?: Limits;
  /** Wall-clock limit. */
  timeout?: Duration;
}

/** The end of one job of a batch. */
export interface BatchResult {
  /** Position of the job in the batch, from 0. */
  number: number;
  /** `BatchJob.key`, or "". */
  key: string;
  /** How it ended, with its output. */
  result: RunResult;
}

/** Options of `batch`. */
export interface BatchOptions {
  /** Kind of sandbox. Default: "default". */
  template?: string;
  /** Limits of each job. Default: the template's. */
  limits?: Limits;
  /** Wall-clock limit of each job. */
  timeout?: Duration;
  /** Network policy of each job. Default: the template's. */
  network?: Network | NetworkPolicy;
  /**
   * What a job finds of the one before it: "sandbox", a fresh one, or "files", the same one without the processes,
   * files and memory of that job, which is faster and needs the network "none" or "off". Default: "sandbox".
   */
  reset?: "sandbox" | "files";
  /**
   * With `reset: "files"`: jobs whose arguments are `python3`, `-c` and code are forked from an interpreter that runs
   * already. Default: each starts its own.
   */
  warm?: "python";
  /** Jobs that run at the same time. Default: two for each CPU of the broker's host. */
  parallel?: number;
  /** Jobs that the broker may have ahead of this program. Default: 256. */
  window?: number;
  /** Time for all of them: jobs that have not ended by then are cancelled, and after their results the iteration
   * rejects with DeadlineExceededError if jobs are left. Default: none. */
  deadline?: Duration;
  /** Volumes to mount in each sandbox, as in `RunOptions`. */
  volumes?: Readonly<Record<string, string>>;
  /** Name of the batch, unique among those of the caller. Default: a random one. */
  key?: string;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

const JOB = { args: true, key: true, env: true, cwd: true, stdin: true, limits: true, timeout: true } as const;
const OPTIONS = {
  template: true,
  limits: true,
  timeout: true,
  network: true,
  reset: true,
  warm: true,
  parallel: true,
  window: true,
  deadline: true,
  volumes: true,
  key: true,
  client: true,
} as const;

/** Jobs of a batch: each a `BatchJob`, or its arguments. */
export type BatchSource =
  | Iterable<BatchJob | readonly string[]>
  | AsyncIterable<BatchJob | readonly string[]>;

function resetOf(reset: BatchOptions["reset"]): BatchReset {
  switch (reset) {
    case undefined:
    case "sandbox":
      return BatchReset.SANDBOX;
    case "files":
      return BatchReset.FILES;
    default:
      throw badArgument("reset", `one of sandbox, files, not ${String(reset)}`);
  }
}

function messageOf(job: BatchJob | readonly string[]): JobMessage {
  if (typeof job !== "object" || (job as unknown) === null) {
    throw wrongType(job, "job", "a BatchJob or a list of strings");
  }
  const given: BatchJob = job instanceof Array ? { args: job } : knownOptions(job, JOB, "job");
  return create(BatchJobSchema, {
    key: textOf(given.key ?? "", "key"),
    command: commandOf(given.args, given, wholeStdin(given.stdin), false),
    ...limitsOf(given),
  });
}

/**
 * The results of many jobs, in the order in which the jobs end: iterate over it. Leaving the loop cancels the jobs that
 * are left.
 */
export class Batch implements AsyncIterableIterator<BatchResult, undefined> {
  /** Name of the batch, unique among those of the caller. */
  readonly key: string;
  readonly #client: Client;
  readonly #options: BatchOptions;
  readonly #source: AsyncIterator<BatchJob | readonly string[]> | Iterator<BatchJob | readonly string[]>;
  readonly #running = new Map<number, string>();
  #stream: MessageStream<RunBatchResponse> | undefined;
  #pending: JobMessage[] = [];
  #sourceEnded = false;
  #window = 0;
  #accepted = 0;
  #given = 0;
  #received = 0;
  #confirmed = 0;
  #saidLast = false;
  #stopped: StockadeError | undefined;
  #out: { stdout: Uint8Array[]; stderr: Uint8Array[] } = { stdout: [], stderr: [] };
  #losses = 0;
  #over = false;

  /** @internal */
  constructor(jobs: BatchSource, options: BatchOptions) {
    knownOptions(options, OPTIONS);
    this.#client = chosenClient(options.client);
    this.#options = options;
    this.key = optionalText(options.key, "key") || randomBytes(16).toString("hex");
    this.#source = Symbol.asyncIterator in jobs ? jobs[Symbol.asyncIterator]() : jobs[Symbol.iterator]();
  }

  /**
   * Jobs that the broker accepted and whose result did not come yet: number and key. After ConnectionLostError it is
   * unknown whether they were executed.
   */
  get unfinished(): ReadonlyMap<number, string> {
    return new Map(this.#running);
  }

  /** The next result. Rejects with the StockadeError that ended the batch. */
  async next(): Promise<IteratorResult<BatchResult, undefined>> {
    if (this.#over) {
      return { done: true, value: undefined };
    }
    this.#received = this.#given;
    try {
      this.#stream ??= await this.#follow(false);
      for (;;) {
        const value = await this.#step();
        if (value !== undefined) {
          return { done: false, value };
        }
        if (this.#over as boolean) {
          break;
        }
      }
    } catch (e) {
      this.cancel();
      throw e;
    }
    if (this.#stopped !== undefined) {
      throw this.#stopped;
    }
    return { done: true, value: undefined };
  }

  /** Cancels the jobs that are left. Never rejects. */
  return(): Promise<IteratorResult<BatchResult, undefined>> {
    this.cancel();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** Cancels the jobs that are left. */
  cancel(): void {
    if (!this.#over) {
      this.#over = true;
      this.#stream?.cancel();
    }
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async #follow(resume: boolean): Promise<MessageStream<RunBatchResponse>> {
    const options = this.#options;
    const request = resume
      ? { key: this.key, resume, received: BigInt(this.#given) }
      : {
          key: this.key,
          template: optionalText(options.template, "template"),
          ...limitsOf(options),
          ...networkOf(options.network),
          reset: resetOf(options.reset),
          warm: optionalText(options.warm, "warm"),
          parallel: options.parallel ?? 0,
          volumes: mountsOf(options.volumes),
          window: options.window ?? 0,
          deadlineMs: lifetimeMs(options.deadline, "deadline"),
        };
    const stream = this.#client.stream(ProcessService.method.runBatch, request);
    const first = await stream.next();
    const event = first.value?.event;
    if (event?.case !== "begun") {
      throw new ProtocolError("the broker did not begin the batch with the message for that");
    }
    this.#window = event.value.window;
    this.#saidLast ||= event.value.last;
    return stream;
  }

  // The connection was lost: goes on over another one.
  async #again(lost: ConnectionLostError): Promise<void> {
    this.#out = { stdout: [], stderr: [] };
    try {
      this.#stream = await this.#follow(true);
    } catch (e) {
      if (e instanceof NotFoundError && this.#running.size === 0 && this.#saidLast && this.#pending.length === 0) {
        this.#over = true; // all results came; only the end was lost
        return;
      }
      throw e instanceof NotFoundError ? lost : e;
    }
  }

  async #step(): Promise<BatchResult | undefined> {
    let message: RunBatchResponse;
    try {
      await this.#add();
      const next = await (this.#stream as MessageStream<RunBatchResponse>).next();
      if (next.done === true) {
        throw new ProtocolError("the broker ended the batch without the message for that");
      }
      message = next.value;
    } catch (e) {
      if (!(e instanceof ConnectionLostError) || ++this.#losses > RESUME_MAX) {
        throw e;
      }
      await this.#again(e);
      return undefined;
    }
    this.#losses = 0;
    switch (message.event.case) {
      case "output":
        this.#out[message.event.value.stream === Stream.STDERR ? "stderr" : "stdout"].push(message.event.value.data);
        return undefined;
      case "finished":
        return this.#finished(message.event.value);
      case "ended":
        this.#over = true;
        return undefined;
      default:
        return undefined;
    }
  }

  #finished(message: Finished): BatchResult {
    if (Number(message.sequence) !== this.#given + 1 || message.result === undefined) {
      throw new ProtocolError(`result ${message.sequence} came after result ${this.#given}`);
    }
    this.#given++;
    const number = Number(message.number);
    this.#running.delete(number);
    const lost = Number(message.lostBytes);
    const kept = {
      stdout: new Uint8Array(Buffer.concat(this.#out.stdout)),
      stderr: new Uint8Array(Buffer.concat(this.#out.stderr)),
      missing: lost + Number(message.result.bill?.outputCutBytes?.value ?? 0n),
      cut: lost,
    };
    this.#out = { stdout: [], stderr: [] };
    const job = { args: [], processId: message.processId, sandboxId: "" };
    return { number, key: message.key, result: new RunResult(message.result, kept, job) };
  }

  // Reads jobs, as many as one request carries and the window has room for.
  async #pull(): Promise<void> {
    const room = Math.min(this.#window - (this.#accepted - this.#received), ADD_JOBS_MAX);
    let bytes = this.#pending.reduce((sum, job) => sum + toBinary(BatchJobSchema, job).length, 0);
    while (!this.#sourceEnded && this.#pending.length < room && bytes < ADD_BYTES_MAX) {
      const next = await this.#source.next();
      if (next.done === true) {
        this.#sourceEnded = true;
        return;
      }
      const job = messageOf(next.value);
      bytes += toBinary(BatchJobSchema, job).length;
      this.#pending.push(job);
    }
  }

  // Sends jobs, and confirms results, where that is worth a request.
  async #add(): Promise<void> {
    const open = this.#accepted - this.#received;
    const few = Math.max(1, Math.floor(this.#window / 4));
    const unconfirmed = this.#received - this.#confirmed;
    const hasRoom = this.#window - open >= few;
    if (this.#stopped === undefined && hasRoom) {
      await this.#pull();
    }
    const jobs = this.#stopped === undefined && hasRoom ? this.#pending : [];
    const last = this.#sourceEnded && this.#stopped === undefined && jobs.length === this.#pending.length;
    const ends = last && !this.#saidLast;
    const confirms = unconfirmed >= few || (open === 0 && unconfirmed > 0);
    if (jobs.length === 0 && !ends && !confirms) {
      return;
    }
    const sent = jobs.length;
    try {
      const answer = await this.#client.unary(ProcessService.method.addToBatch, {
        key: this.key,
        first: BigInt(this.#accepted),
        jobs,
        last,
        received: BigInt(this.#received),
      });
      this.#took(Number(answer.accepted), last, sent);
    } catch (e) {
      if (e instanceof NotFoundError) {
        // It has just ended, or the broker was restarted: the stream knows which.
        this.#stopped ??= new DeadlineExceededError(
          Code.DEADLINE_EXCEEDED,
          "the batch ended before all jobs were accepted",
        );
        return;
      }
      const stops = e instanceof DeadlineExceededError || e instanceof UnavailableError;
      if (!stops || e instanceof ConnectionLostError || this.#stopped !== undefined || sent === 0) {
        throw e;
      }
      this.#stopped = e;
    }
  }

  #took(accepted: number, last: boolean, sent: number): void {
    this.#confirmed = this.#received;
    this.#saidLast ||= last && accepted === this.#accepted + sent;
    for (; this.#accepted < accepted; this.#accepted++) {
      this.#running.set(this.#accepted, this.#pending.shift()?.key ?? "");
    }
  }
}

/**
 * Runs many jobs, each in a fresh sandbox, and iterates over their results as they finish. A job that fails is a
 * result, not an error. No job is executed twice, also when the connection breaks: the iteration continues. It rejects
 * with ConnectionLostError when the broker was restarted (see `Batch.unfinished`), and with InvalidArgumentError for a
 * job that cannot be.
 *
 * @example
 * for await (const { number, result } of batch([["echo", "a"], ["echo", "b"]])) {
 *   console.log(number, result.stdout);
 * }
 */
export function batch(jobs: BatchSource, options: BatchOptions = {}): Batch {
  const given: unknown = jobs;
  if (typeof given !== "object" || given === null || !(Symbol.iterator in given || Symbol.asyncIterator in given)) {
    throw badArgument("jobs", "an iterable of jobs is needed");
  }
  return new Batch(jobs, options);
}
