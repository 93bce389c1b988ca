// SPDX-License-Identifier: Apache-2.0
// Cells of code, and the contexts that they run in.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "./client.js";
import { NotFoundError, ProtocolError } from "./errors.js";
import { callback, optionalText } from "./fields.js";
import { CodeService, CodeState, CodeStatus } from "./gen/stockade/v1/code_service_pb.js";
import type { CodeContext, CodeEnd, RunCodeRequestSchema, RunCodeResponse } from "./gen/stockade/v1/code_service_pb.js";
import { Stream } from "./gen/stockade/v1/process_service_pb.js";
import { controlOf, controlOnly, chosenClient, mountsOf, OPTIONS } from "./jobs.js";
import type { CallControl, FreshSandbox } from "./jobs.js";
import { limitsMessage } from "./limits.js";
import type { Limits } from "./limits.js";
import { checkpointName, checkpointOf } from "./live.js";
import type { Checkpoint } from "./live.js";
import { networkOf } from "./network.js";
import { billOf } from "./result.js";
import type { Bill } from "./result.js";
import type { MessageStream } from "./stream.js";
import { knownOptions, lifetimeMs, textsOf } from "./units.js";
import type { Duration } from "./units.js";
import { simulateOf, simulationOf } from "./simulations.js";
import type { Simulate, Simulation } from "./simulations.js";

const RESULT_BYTES_MAX = 64 * 1024 * 1024; // of all results of one cell

/** A language of cells. Default: python. */
export type Language = "python" | "bash" | "javascript";

/** Options of a cell. */
export interface CellOptions extends CallControl {
  /** Time of the cell: seconds or "1.5m". Then it is interrupted. Default: none; 60 s in a fresh sandbox. */
  timeout?: Duration;
  /** Called with text of stdout as it is written. */
  onStdout?: (text: string) => unknown;
  /** The same for stderr. */
  onStderr?: (text: string) => unknown;
  /** Called with each result as it is complete. */
  onResult?: (result: CodeResult) => unknown;
  /** As in `RunOptions`, in a new context of a fork of the sandbox; refused in a context (`Execution.simulation`). */
  simulate?: Simulate;
}

/** Options of `Sandbox.runCode`. */
export interface SandboxCellOptions extends CellOptions {
  /** Language of the default context. */
  language?: Language;
  /** Where it runs. Default: the sandbox's default context for the language. */
  context?: Context | string;
}

/** Options of `runCode`. */
export interface FreshCellOptions
  extends CellOptions,
    Pick<FreshSandbox, "template" | "network" | "volumes" | "client"> {
  /** Language of the cell. */
  language?: Language;
  /** Limits of the sandbox, without `timeout` and `output`. */
  limits?: Limits;
  /** Variables to add to the template's environment. */
  env?: Readonly<Record<string, string>>;
}

/** Options of `Sandbox.createContext`. */
export interface ContextOptions extends CallControl {
  /** Its language. */
  language?: Language;
  /** The folder in which its interpreter starts. Default: the template's. */
  cwd?: string;
  /** Variables to add to the template's environment. */
  env?: Readonly<Record<string, string>>;
}

/** A result of a cell: the value of the last expression, or something that it displayed. */
export class CodeResult {
  /** Its forms by MIME type, such as text/plain, text/html or image/png. */
  readonly forms: Readonly<Record<string, Uint8Array>>;
  /** True for the value of the last expression. */
  readonly main: boolean;

  /** @internal */
  constructor(forms: Readonly<Record<string, Uint8Array>>, main: boolean) {
    this.forms = forms;
    this.main = main;
  }

  /** A form as text, or undefined. */
  form(mime: string): string | undefined {
    const bytes = this.forms[mime];
    return bytes === undefined ? undefined : new TextDecoder().decode(bytes);
  }

  /** As text. */
  get text(): string | undefined {
    return this.form("text/plain");
  }

  /** As HTML. It was made by the code of the cell: do not trust it. */
  get html(): string | undefined {
    return this.form("text/html");
  }

  /** As a PNG picture. */
  get png(): Uint8Array | undefined {
    return this.forms["image/png"];
  }

  /** The data of a figure, decoded. */
  get chart(): unknown {
    return this.#json("e2b/chart");
  }

  /** The columns of a table, decoded. */
  get data(): unknown {
    return this.#json("e2b/data");
  }

  #json(mime: string): unknown {
    try {
      return JSON.parse(this.form(mime) ?? "null") ?? undefined;
    } catch {
      return undefined;
    }
  }
}

/** An error that a cell did not handle. */
export interface CodeFailure {
  /** Its kind, such as "ZeroDivisionError"; of bash "ExitStatus". */
  name: string;
  /** Its text. */
  value: string;
  /** Where it happened. */
  traceback: string;
}

/** What a cell did. */
export interface Execution {
  /** How it ended. */
  status: "ok" | "error" | "interrupted" | "crashed" | "timeout" | "cancelled" | "unknown";
  /** What it wrote to stdout. */
  stdout: string;
  /** What it wrote to stderr. */
  stderr: string;
  /** Its results, in order. */
  results: readonly CodeResult[];
  /** The value of the last expression as text. */
  text: string | undefined;
  /** The error that ended it. */
  error: CodeFailure | undefined;
  /** Number of cells that the interpreter has run with this one; 0: unknown. */
  executionCount: number;
  /** One sentence, if it crashed, timed out or was cancelled. */
  reason: string;
  /** True if the variables of the context are lost. */
  lost: boolean;
  /** The resources that the cell used. */
  bill: Bill;
  /** Where it ran. */
  contextId: string;
  /** The sandbox of the context. */
  sandboxId: string;
  /** Of a cell with `simulate`: what it would have changed and sent. */
  simulation: Simulation | undefined;
}

/** A context, as the broker describes it. */
export interface ContextInfo {
  /** An opaque text of at most 48 characters. */
  id: string;
  /** The sandbox that it belongs to. */
  sandboxId: string;
  /** python, bash or javascript. */
  language: string;
  /** The folder in which its interpreter starts. */
  cwd: string;
  /** What it does; "down": it has no interpreter. */
  state: "starting" | "idle" | "busy" | "down" | "unknown";
  /** Number of cells that its interpreter has run. */
  executionCount: number;
  /** Cells that wait for it. */
  waiting: number;
  /** True if cells without a context use it. */
  default: boolean;
  /** Its interpreter, for `Sandbox.attach`; "": it has none. */
  processId: string;
}

const statuses: Readonly<Record<number, Execution["status"]>> = {
  [CodeStatus.OK]: "ok",
  [CodeStatus.ERROR]: "error",
  [CodeStatus.INTERRUPTED]: "interrupted",
  [CodeStatus.CRASHED]: "crashed",
  [CodeStatus.TIMEOUT]: "timeout",
  [CodeStatus.CANCELLED]: "cancelled",
};

const states: Readonly<Record<number, ContextInfo["state"]>> = {
  [CodeState.STARTING]: "starting",
  [CodeState.IDLE]: "idle",
  [CodeState.BUSY]: "busy",
  [CodeState.DOWN]: "down",
};

/** @internal */
export function contextInfo(message: CodeContext | undefined): ContextInfo {
  return {
    id: message?.id ?? "",
    sandboxId: message?.sandboxId ?? "",
    language: message?.language ?? "",
    cwd: message?.workdir ?? "",
    state: states[message?.state ?? 0] ?? "unknown",
    executionCount: message?.executionCount ?? 0,
    waiting: message?.waiting ?? 0,
    default: message?.default ?? false,
    processId: message?.processId ?? "",
  };
}

const CELL = {
  ...OPTIONS.control,
  timeout: true,
  onStdout: true,
  onStderr: true,
  onResult: true,
  simulate: true,
} as const;
/** @internal */
export const CODE_OPTIONS = {
  cell: CELL,
  inSandbox: { ...CELL, language: true, context: true },
  fresh: {
    ...CELL,
    language: true,
    template: true,
    network: true,
    volumes: true,
    client: true,
    limits: true,
    env: true,
  },
  context: { ...OPTIONS.control, language: true, cwd: true, env: true },
} as const;

/** @internal */
export function variablesOf(env: Readonly<Record<string, string>> | undefined): { name: string; value: string }[] {
  return Object.entries(textsOf(env, "env")).map(([name, value]) => ({ name, value }));
}

// Folds the events of one cell into an Execution.
class Collector {
  readonly #options: CellOptions;
  readonly #output = { stdout: "", stderr: "" };
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  readonly #results: CodeResult[] = [];
  #forms: Record<string, Uint8Array[]> = {};
  #bytes = 0;
  #error: CodeFailure | undefined;
  #contextId = "";
  #sandboxId = "";

  constructor(options: CellOptions) {
    this.#options = options;
  }

  async feed({ event }: RunCodeResponse): Promise<Execution | undefined> {
    const what = event?.event;
    if (what?.case === "begin") {
      this.#contextId = what.value.contextId;
      this.#sandboxId = what.value.sandboxId;
    } else if (what?.case === "output") {
      const name = what.value.stream === Stream.STDERR ? "stderr" : "stdout";
      const text = this.#decoders[name].decode(what.value.data, { stream: true });
      this.#output[name] += text;
      await (name === "stderr" ? this.#options.onStderr : this.#options.onStdout)?.(text);
    } else if (what?.case === "result") {
      await this.#part(what.value);
    } else if (what?.case === "error") {
      const { name, value, traceback } = what.value;
      this.#error = { name, value, traceback };
    } else if (what?.case === "end") {
      return this.#finish(what.value);
    }
    return undefined;
  }

  async #part(part: { mimeType: string; data: Uint8Array; main: boolean; last: boolean }): Promise<void> {
    this.#bytes += part.data.length;
    if (this.#bytes > RESULT_BYTES_MAX) {
      throw new ProtocolError(`the results of the cell exceed ${RESULT_BYTES_MAX} bytes`);
    }
    (this.#forms[part.mimeType] ??= []).push(part.data);
    if (!part.last) {
      return;
    }
    const forms: Record<string, Uint8Array> = {};
    for (const [mime, pieces] of Object.entries(this.#forms)) {
      forms[mime] = new Uint8Array(Buffer.concat(pieces));
    }
    const result = new CodeResult(forms, part.main);
    this.#forms = {};
    this.#results.push(result);
    await this.#options.onResult?.(result);
  }

  #finish(end: CodeEnd): Execution {
    return {
      status: statuses[end.status] ?? "unknown",
      ...this.#output,
      results: this.#results,
      text: this.#results.find((r) => r.main)?.text,
      error: this.#error,
      executionCount: end.executionCount,
      reason: end.reason,
      lost: end.lost,
      bill: billOf(end.bill),
      contextId: this.#contextId,
      sandboxId: this.#sandboxId,
      simulation: simulationOf(end.simulation),
    };
  }
}

/** @internal A request without what the options of a cell say. */
export type CellRequest = MessageInitShape<typeof RunCodeRequestSchema>;

/** @internal Runs a cell to its end. A callback that throws interrupts it. */
export async function execute(client: Client, request: CellRequest, options: CellOptions): Promise<Execution> {
  callback(options.onStdout, "onStdout");
  callback(options.onStderr, "onStderr");
  callback(options.onResult, "onResult");
  const simulate = simulateOf(options.simulate);
  const whole = { ...request, ...simulate, timeoutMs: lifetimeMs(options.timeout, "timeout") } as CellRequest;
  const stream: MessageStream<RunCodeResponse> = client.stream(CodeService.method.runCode, whole, controlOf(options));
  const collector = new Collector(options);
  try {
    for await (const message of stream) {
      const done = await collector.feed(message);
      if (done !== undefined) {
        return done;
      }
    }
  } catch (e) {
    stream.cancel();
    throw e;
  }
  throw new ProtocolError("the broker ended the stream without an end");
}

/** A context: an interpreter in a sandbox that keeps its variables. See `Sandbox.createContext`. */
export class Context {
  readonly #client: Client;
  /** The last state that the broker sent. */
  readonly info: ContextInfo;

  /** @internal */
  constructor(client: Client, info: ContextInfo) {
    this.#client = client;
    this.info = info;
  }

  /** An opaque text of at most 48 characters. */
  get id(): string {
    return this.info.id;
  }

  /** Runs a cell here. See `Sandbox.runCode`. Rejects with NotFoundError if the context does not exist any more. */
  async run(code: string, options: CellOptions = {}): Promise<Execution> {
    knownOptions(options, CODE_OPTIONS.cell);
    return execute(this.#client, { code, contextId: this.id }, options);
  }

  /** Ends the interpreter; the next cell gets a fresh one. Rejects with NotFoundError. */
  async restart(options: CallControl = {}): Promise<void> {
    await this.#client.unary(CodeService.method.restartContext, { contextId: this.id }, controlOnly(options));
  }

  /** Stops the running cell, as ^C does; its variables stay. Rejects with NotFoundError. */
  async interrupt(options: CallControl = {}): Promise<void> {
    await this.#client.unary(CodeService.method.interruptContext, { contextId: this.id }, controlOnly(options));
  }

  /**
   * Keeps the variables of a python context; no cell may run in it meanwhile. Rejects with FailedPreconditionError if
   * it holds something that cannot be kept, such as a thread or a connection (the text says what), and with
   * ResourceExhaustedError if there are too many checkpoints, or they have too much memory.
   */
  async checkpoint(name?: string, options: CallControl = {}): Promise<Checkpoint> {
    const request = { contextId: this.id, name: optionalText(name, "name") };
    const answer = await this.#client.unary(CodeService.method.checkpointContext, request, controlOnly(options));
    return checkpointOf(answer.checkpoint);
  }

  /**
   * Goes back to a checkpoint of its sandbox. The variables of now are lost. Rejects with NotFoundError,
   * FailedPreconditionError (the checkpoint is lost).
   */
  async restore(checkpoint: Checkpoint | string, options: CallControl = {}): Promise<void> {
    const request = { contextId: this.id, checkpoint: checkpointName(checkpoint) };
    await this.#client.unary(CodeService.method.restoreContext, request, controlOnly(options));
  }

  /** Makes a context with the variables of a checkpoint; undefined: with those of now. Rejects like `checkpoint`. */
  async fork(checkpoint?: Checkpoint | string, options: CallControl = {}): Promise<Context> {
    const request = { contextId: this.id, checkpoint: checkpoint === undefined ? "" : checkpointName(checkpoint) };
    const { context } = await this.#client.unary(CodeService.method.forkContext, request, controlOnly(options));
    return new Context(this.#client, contextInfo(context));
  }

  /**
   * Ends the interpreter and removes the context. Does nothing if it does not exist any more. Rejects with
   * UnavailableError if the broker cannot be reached.
   */
  async delete(options: CallControl = {}): Promise<void> {
    try {
      await this.#client.unary(CodeService.method.deleteContext, { contextId: this.id }, controlOnly(options));
    } catch (e) {
      if (!(e instanceof NotFoundError)) {
        throw e;
      }
    }
  }
}

/**
 * Runs a cell of code in a fresh sandbox, which is destroyed afterwards. Code that fails is not an error of the call:
 * see its result. Rejects like `run`.
 *
 * @example
 * console.log((await runCode("6 * 7")).text);
 */
export async function runCode(code: string, options: FreshCellOptions = {}): Promise<Execution> {
  knownOptions(options, CODE_OPTIONS.fresh);
  const request = {
    code,
    language: options.language ?? "",
    template: optionalText(options.template, "template"),
    ...(options.limits === undefined ? {} : { limits: limitsMessage(options.limits) }),
    ...networkOf(options.network),
    env: variablesOf(options.env),
    volumes: mountsOf(options.volumes),
  };
  return execute(chosenClient(options.client), request, options);
}
