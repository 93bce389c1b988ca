// SPDX-License-Identifier: Apache-2.0
// Sandboxes that are kept: the interface that most programs need, beside `run` (jobs.ts).
import { inspect } from "node:util";
import type { Client } from "./client.js";
import { CODE_OPTIONS, Context, contextInfo, execute, variablesOf } from "./code.js";
import type { ContextOptions, Execution, SandboxCellOptions } from "./code.js";
import { processInfo, sandboxInfo } from "./described.js";
import type { ProcessInfo, SandboxInfo } from "./described.js";
import { NotFoundError } from "./errors.js";
import { optionalText, wrongType } from "./fields.js";
import { Files } from "./files.js";
import { Forward } from "./forward.js";
import type { ForwardOptions } from "./forward.js";
import { CodeService } from "./gen/stockade/v1/code_service_pb.js";
import { checkpointName, checkpointOf } from "./live.js";
import type { Checkpoint } from "./live.js";
import { ProcessService } from "./gen/stockade/v1/process_service_pb.js";
import { SandboxService } from "./gen/stockade/v1/sandbox_service_pb.js";
import type { Sandbox as SandboxMessage } from "./gen/stockade/v1/sandbox_service_pb.js";
import {
  checkRun,
  collectorOf,
  OPTIONS,
  controlOf,
  controlOnly,
  chosenClient,
  finish,
  isStdinOpen,
  mountsOf,
  wholeStdin,
} from "./jobs.js";
import type { CallControl, CommandOptions, FreshSandbox, SandboxRunOptions, StartOptions } from "./jobs.js";
import { limitsMessage } from "./limits.js";
import type { Limits } from "./limits.js";
import { PORT_MAX, letsIn, networkOf } from "./network.js";
import type { Network, NetworkPolicy } from "./network.js";
import { Process, splitStdin } from "./process.js";
import { RunResult } from "./result.js";
import { SnapshotService } from "./gen/stockade/v1/snapshot_service_pb.js";
import { changesOf, COPY_OPTIONS, copyOf, patchOf, pathBytes, snapshotInfo, snapshotsOf } from "./snapshots.js";
import type { Change, CopyOptions, SnapshotInfo } from "./snapshots.js";
import { simulateOf } from "./simulations.js";
import { startProcess } from "./starting.js";
import type { StartMode } from "./starting.js";
import { policyNumber, Transaction, transactionInfo, transactionsOf } from "./transactions.js";
import type { TransactionInfo } from "./transactions.js";
import { TransactionService } from "./gen/stockade/v1/transaction_service_pb.js";
import { TemplateService } from "./gen/stockade/v1/template_service_pb.js";
import { sandboxTemplate } from "./templates.js";
import type { SandboxTemplate } from "./templates.js";
import { badArgument, count, knownOptions, lifetimeMs, textsOf } from "./units.js";
import type { Duration, Size } from "./units.js";

/** Options of `Sandbox.create`. */
export interface CreateOptions extends FreshSandbox, CallControl {
  /** Time to live: seconds or "10m". Default: the broker's default (5 minutes). At most 30 days. */
  ttl?: Duration;
  /** Limits of the sandbox and its jobs. */
  limits?: Limits;
  /** Begin with the files of this kept snapshot: its name or `keptId`. */
  snapshot?: string;
  /** Let it fall asleep when nobody used it for so long: seconds or "10m". Default: the template's. */
  sleepAfter?: Duration;
}

function contextId(context: NonNullable<SandboxCellOptions["context"]>): string {
  const id: unknown = typeof context === "string" ? context : (context as Partial<Context> | null)?.id;
  if (typeof id !== "string") {
    throw wrongType(context, "context", "a Context or its id");
  }
  return optionalText(id, "context");
}

// A request with 0 makes one.
function forkCount(given = 1): number {
  if (count(given, "count") === 0) {
    throw badArgument("count", "must be 1 or more");
  }
  return given;
}

// A sandbox has a time to live, a job a timeout: one for the other would be passed over.
function needTtl(options: unknown): void {
  if (typeof options === "object" && options !== null && "timeout" in options) {
    throw badArgument("timeout", "is of a job; the time to live of a sandbox is called ttl");
  }
}

/**
 * A sandbox that exists until it is deleted or its time to live ends; with `await using` it is deleted at the end of
 * the block. Its methods reject with a StockadeError.
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
   * Creates a sandbox, or takes a ready one; it is running when this resolves. Rejects with InvalidArgumentError,
   * AlreadyExistsError (the name is in use) and ResourceExhaustedError (too many sandboxes).
   */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    needTtl(options);
    const own = { ttl: true, limits: true, snapshot: true, sleepAfter: true } as const;
    knownOptions(options, { ...OPTIONS.fresh, ...OPTIONS.control, ...own });
    const client = chosenClient(options.client);
    const request = {
      template: optionalText(options.template, "template"),
      ...(options.limits === undefined ? {} : { limits: limitsMessage(options.limits) }),
      ...networkOf(options.network),
      metadata: textsOf(options.metadata, "metadata"),
      ttlMs: lifetimeMs(options.ttl),
      name: optionalText(options.name, "name"),
      volumes: mountsOf(options.volumes),
      snapshot: optionalText(options.snapshot, "snapshot"),
      sleepAfterMs: lifetimeMs(options.sleepAfter, "sleepAfter"),
    };
    const { sandbox } = await client.unary(SandboxService.method.create, request, controlOf(options));
    return new Sandbox(client, sandboxInfo(sandbox));
  }

  /** Finds an existing sandbox by its id or name. Rejects with NotFoundError. */
  static async connect(id: string, options: { client?: Client } & CallControl = {}): Promise<Sandbox> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    const { sandbox } = await client.unary(SandboxService.method.get, { id }, controlOf(options));
    return new Sandbox(client, sandboxInfo(sandbox));
  }

  /**
   * The caller's sandboxes, oldest first; with `metadata` only those that have all of these labels. Rejects with
   * UnavailableError if the broker cannot be reached.
   */
  static async *list(
    options: { client?: Client; metadata?: Readonly<Record<string, string>> } & CallControl = {},
  ): AsyncGenerator<SandboxInfo, void, undefined> {
    knownOptions(options, { ...OPTIONS.control, client: true, metadata: true });
    const client = chosenClient(options.client);
    let pageToken = "";
    do {
      const request = { pageSize: 1000, pageToken, metadata: textsOf(options.metadata, "metadata") };
      const page = await client.unary(SandboxService.method.list, request, controlOf(options));
      yield* page.sandboxes.map(sandboxInfo);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** An opaque text of at most 48 characters. */
  get id(): string {
    return this.#info.id;
  }

  /** Its files: read, write, list and change them. */
  get files(): Files {
    return new Files(this.#client, this.id);
  }

  /** The last state that the broker sent; `refresh()` requests it again. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** In short, for console.log: its id, its name and its state. */
  [inspect.custom](): string {
    const { id, name, state } = this.#info;
    return `<Sandbox ${id}${name === "" ? "" : ` ${inspect(name)}`} ${state}>`;
  }

  /** Requests the current state of the sandbox. Rejects with NotFoundError if it does not exist any more. */
  async refresh(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.get, { id: this.id }, controlOnly(options));
    return this.#take(sandbox);
  }

  /**
   * Runs a command and waits for its end. A job that fails is not an error of the call: see its result. If the call is
   * cancelled (`signal`, `deadline`, a callback that throws), the command is killed. Rejects with
   * FailedPreconditionError (paused), NotFoundError (deleted), and like the function `run`.
   */
  async run(args: readonly string[], options: SandboxRunOptions = {}): Promise<RunResult> {
    checkRun(options, { ...OPTIONS.run, transaction: true });
    const { inline, more } = splitStdin(options.stdin);
    const mode = {
      stdinOpen: more !== undefined,
      foreground: true,
      transaction: policyNumber(options.transaction),
      ...simulateOf(options.simulate),
    };
    const process = await this.#start(args, options, inline, mode);
    return finish(process, options, more);
  }

  /**
   * Starts a command and resolves when it runs. It keeps running when this program ends; `attach` finds it again. It
   * runs as long as its sandbox unless `timeout` or `limits`, here or in `create`, set a limit. After a lost
   * connection, reading continues after the last byte that was received. Rejects like `run`.
   */
  async start(args: readonly string[], options: StartOptions = {}): Promise<Process> {
    knownOptions(options, OPTIONS.start);
    const mode = { stdinOpen: isStdinOpen(options), foreground: false };
    return this.#start(args, options, wholeStdin(options.stdin), mode);
  }

  /**
   * A process that runs in a sandbox, or ended less than 30 s ago, by its id. `offset`: offset of the first byte to
   * read; a gap reports bytes that are no longer kept. Rejects with NotFoundError.
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
   * Listens on this machine's loopback interface, and forwards each connection to a port of the sandbox, which its
   * policy's `inbound` must list. Rejects with PermissionDeniedError (the policy does not list the port),
   * InvalidArgumentError (not a port, or not a loopback address), and the system's error if the local port is in use.
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
   * Runs a cell of code and waits for its end; variables stay for the next cell. Code that fails is not an error of the
   * call: see its result. If the call is cancelled (`signal`, `deadline`, a callback that throws), the cell is
   * interrupted. Rejects with FailedPreconditionError (paused), NotFoundError (deleted), ResourceExhaustedError.
   */
  async runCode(code: string, options: SandboxCellOptions = {}): Promise<Execution> {
    knownOptions(options, CODE_OPTIONS.inSandbox);
    const { context, language } = options;
    if (context !== undefined && language !== undefined) {
      throw badArgument("language", "context has one already; omit one of the two");
    }
    const where =
      context === undefined
        ? { sandboxId: this.id, language: language ?? "" }
        : { contextId: contextId(context) };
    return execute(this.#client, { code, ...where }, options);
  }

  /** Makes a context: an interpreter of its own, with its own variables. Rejects like `runCode`. */
  async createContext(options: ContextOptions = {}): Promise<Context> {
    knownOptions(options, CODE_OPTIONS.context);
    const request = {
      sandboxId: this.id,
      language: options.language ?? "",
      workdir: optionalText(options.cwd, "cwd"),
      env: variablesOf(options.env),
    };
    const { context } = await this.#client.unary(CodeService.method.createContext, request, controlOf(options));
    return new Context(this.#client, contextInfo(context));
  }

  /** Its contexts, oldest first. Rejects with NotFoundError if the sandbox does not exist any more. */
  async contexts(options: CallControl = {}): Promise<Context[]> {
    const request = { sandboxId: this.id };
    const { contexts } = await this.#client.unary(CodeService.method.listContexts, request, controlOnly(options));
    return contexts.map((message) => new Context(this.#client, contextInfo(message)));
  }

  /** The checkpoints of its contexts, oldest first. Rejects with NotFoundError. */
  async checkpoints(options: CallControl = {}): Promise<Checkpoint[]> {
    const request = { sandboxId: this.id };
    const answer = await this.#client.unary(CodeService.method.listCheckpoints, request, controlOnly(options));
    return answer.checkpoints.map(checkpointOf);
  }

  /** Deletes a checkpoint and its memory. Rejects with NotFoundError. */
  async deleteCheckpoint(checkpoint: Checkpoint | string, options: CallControl = {}): Promise<void> {
    const request = { sandboxId: this.id, name: checkpointName(checkpoint) };
    await this.#client.unary(CodeService.method.deleteCheckpoint, request, controlOnly(options));
  }

  /**
   * Its processes, oldest first: running ones, and ended ones that `attach` still finds. Rejects with NotFoundError if
   * the sandbox does not exist any more.
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
   * Changes the time to live (from now on), labels (the value "" removes a label) and the network policy. A policy
   * replaces the whole old one; connections that it forbids are closed. Rejects with NotFoundError if the sandbox does
   * not exist any more, InvalidArgumentError if a value is out of its bounds, FailedPreconditionError if the policy is
   * wider than its template's.
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

  /**
   * Makes sandboxes that begin with its files, of now or of `snapshot`; none sees what another one writes. `count`: 1
   * to 100, all are made, or none. `stop`: cancel the jobs that run in it first; without a snapshot there must be none.
   * `copy`, `copyMax`, `copyTime`: jobs may run, as of `snapshot`.
   * The forks have its template, limits, labels and network policy. Rejects with FailedPreconditionError,
   * NotFoundError and ResourceExhaustedError.
   */
  async fork(
    options: { count?: number; snapshot?: string; stop?: boolean; ttl?: Duration } & CopyOptions & CallControl = {},
  ): Promise<Sandbox[]> {
    const names = { ...OPTIONS.control, ...COPY_OPTIONS, count: true, snapshot: true, stop: true, ttl: true } as const;
    knownOptions(options, names);
    const request = {
      id: this.id,
      count: forkCount(options.count),
      snapshot: optionalText(options.snapshot, "snapshot"),
      stop: options.stop ?? false,
      ttlMs: lifetimeMs(options.ttl),
      ...copyOf(options),
    };
    const { sandboxes } = await this.#client.unary(SandboxService.method.fork, request, controlOf(options));
    return sandboxes.map((message) => new Sandbox(this.#client, sandboxInfo(message)));
  }

  /**
   * Begins a transaction of its files. `stop`: cancel the jobs that run in it first; otherwise there must be none.
   * `ttl`: time until it is discarded; default: that of this sandbox. Its jobs run in a sandbox of their own: they see
   * no process and no variable of this one. Rejects with FailedPreconditionError and ResourceExhaustedError.
   */
  async transaction(options: { stop?: boolean; ttl?: Duration } & CallControl = {}): Promise<Transaction> {
    knownOptions(options, { ...OPTIONS.control, stop: true, ttl: true });
    const control = controlOf(options);
    const request = { sandbox: this.id, stop: options.stop ?? false, ttlMs: lifetimeMs(options.ttl) };
    const { transaction } = await this.#client.unary(TransactionService.method.begin, request, control);
    const info = transactionInfo(transaction);
    const { sandbox } = await this.#client.unary(SandboxService.method.get, { id: info.id }, control);
    return new Transaction(this.#client, info, new Sandbox(this.#client, sandboxInfo(sandbox)));
  }

  /** Its transactions, oldest first: open ones, and the last ended ones. Rejects with NotFoundError. */
  transactions(options: CallControl = {}): AsyncGenerator<TransactionInfo, void, undefined> {
    return transactionsOf(this.#client, this.id, options);
  }

  /**
   * Keeps the state of its files: /home/agent, /tmp, /var/tmp, /dev/shm. Without a name the broker
   * chooses one. `stop`: cancel the jobs that run in it first; otherwise there must be none. `keep`: write it to the
   * broker's disk, so that it outlasts the sandbox and the broker; otherwise it ends with its sandbox. It does not hold
   * what `notIncluded` lists. Rejects with FailedPreconditionError (jobs run, or it is paused), AlreadyExistsError,
   * ResourceExhaustedError (too many snapshots; with `keep`: the quota is used up, or the disk is full; with `copy`:
   * too much to copy, or no room for it in the sandbox), DeadlineExceededError (`copyTime`).
   */
  async snapshot(
    options: { name?: string; stop?: boolean; keep?: boolean } & CopyOptions & CallControl = {},
  ): Promise<SnapshotInfo> {
    knownOptions(options, { ...OPTIONS.control, ...COPY_OPTIONS, name: true, stop: true, keep: true });
    const request = {
      sandbox: this.id,
      name: optionalText(options.name, "name"),
      stop: options.stop ?? false,
      keep: options.keep ?? false,
      ...copyOf(options),
    };
    const made = await this.#client.unary(SnapshotService.method.create, request, controlOf(options));
    return snapshotInfo(made.snapshot);
  }

  /**
   * Makes a template of its files, of now or of `snapshot`: `template: name` of other calls begins with them. `stop`:
   * cancel the jobs that run in it first; without a snapshot there must be none. `env`, `workdir`: of the jobs of its
   * sandboxes. `replace`: a template of this name is replaced; after a failure it is as it was. It is on the broker's
   * disk and outlasts the broker, until `deleteTemplate`. Rejects with
   * FailedPreconditionError, AlreadyExistsError, NotFoundError and ResourceExhaustedError.
   */
  async makeTemplate(
    name: string,
    options: {
      snapshot?: string;
      stop?: boolean;
      env?: Readonly<Record<string, string>>;
      workdir?: string;
      replace?: boolean;
    } & CallControl = {},
  ): Promise<SandboxTemplate> {
    knownOptions(options, { ...OPTIONS.control, snapshot: true, stop: true, env: true, workdir: true, replace: true });
    const request = {
      name,
      sandbox: this.id,
      snapshot: optionalText(options.snapshot, "snapshot"),
      stop: options.stop ?? false,
      replace: options.replace ?? false,
      workdir: optionalText(options.workdir, "workdir"),
      env: Object.entries(textsOf(options.env, "env")).map(([key, value]) => ({ name: key, value })),
    };
    const made = await this.#client.unary(TemplateService.method.create, request, controlOf(options));
    return sandboxTemplate(made.template);
  }

  /** Its snapshots, oldest first. Rejects with NotFoundError if the sandbox does not exist any more. */
  snapshots(options: CallControl = {}): AsyncGenerator<SnapshotInfo, void, undefined> {
    return snapshotsOf(this.#client, this.id, controlOnly(options));
  }

  /** One of its snapshots. Rejects with NotFoundError. */
  async getSnapshot(name: string, options: CallControl = {}): Promise<SnapshotInfo> {
    const request = { sandbox: this.id, name };
    return snapshotInfo((await this.#client.unary(SnapshotService.method.get, request, controlOnly(options))).snapshot);
  }

  /**
   * The files that differ between two snapshots, sorted by path. Without `to`: between one and the files of now, and
   * jobs may run. `path`: only this file or folder and what it holds, an absolute path. A program inside the sandbox
   * compares them, with the rights of its jobs. Times alone are no difference. Rejects with NotFoundError,
   * FailedPreconditionError (it is paused), UnavailableError.
   */
  diff(
    from: string,
    options: { to?: string; path?: string | Uint8Array } & CallControl = {},
  ): AsyncGenerator<Change, void, undefined> {
    knownOptions(options, { ...OPTIONS.control, to: true, path: true });
    const second = optionalText(options.to, "to");
    const states = { sandboxId: this.id, first: from, second, path: pathBytes(options.path) };
    return changesOf(this.#client, states, controlOf(options));
  }

  /**
   * The difference of one regular file as text, which patch(1) understands; empty: there is none, undefined: the file
   * is no text. `path` and `to`: as in `diff`. Rejects with NotFoundError, FailedPreconditionError (no regular file),
   * ResourceExhaustedError (more than 8 MiB or 200,000 lines).
   */
  async patch(
    path: string | Uint8Array,
    from: string,
    options: { to?: string } & CallControl = {},
  ): Promise<Buffer | undefined> {
    knownOptions(options, { ...OPTIONS.control, to: true });
    const states = { sandboxId: this.id, first: from, second: optionalText(options.to, "to"), path: pathBytes(path) };
    return await patchOf(this.#client, states, controlOf(options));
  }

  /** The caller's kept snapshots, oldest first. Rejects with UnavailableError if the broker cannot be reached. */
  static keptSnapshots(
    options: { client?: Client } & CallControl = {},
  ): AsyncGenerator<SnapshotInfo, void, undefined> {
    const { client, ...control } = options;
    return snapshotsOf(chosenClient(client), "", controlOnly(control));
  }

  /** Deletes a kept snapshot: its name or `keptId`. Rejects with NotFoundError if there is none. */
  static async deleteKeptSnapshot(name: string, options: { client?: Client } & CallControl = {}): Promise<void> {
    const { client, ...control } = options;
    const request = { sandbox: "", name };
    await chosenClient(client).unary(SnapshotService.method.delete, request, controlOnly(control));
  }

  /**
   * Rolls its files back to a snapshot: what was written since is lost. Snapshots stay, also later ones. `stop`: as in
   * `snapshot`. Rejects with NotFoundError and FailedPreconditionError.
   */
  async restore(name: string, options: { stop?: boolean } & CallControl = {}): Promise<void> {
    knownOptions(options, { ...OPTIONS.control, stop: true });
    const request = { sandbox: this.id, name, stop: options.stop ?? false };
    await this.#client.unary(SnapshotService.method.restore, request, controlOf(options));
  }

  /** Deletes a snapshot. The files of the sandbox do not change. Rejects with NotFoundError if there is none. */
  async deleteSnapshot(name: string, options: CallControl = {}): Promise<void> {
    const request = { sandbox: this.id, name };
    await this.#client.unary(SnapshotService.method.delete, request, controlOnly(options));
  }

  /** Freezes every process in it. Rejects with FailedPreconditionError if it is not running. */
  async pause(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.pause, { id: this.id }, controlOnly(options));
    return this.#take(sandbox);
  }

  /** Resumes it. Rejects with FailedPreconditionError if it is not paused. */
  async resume(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.resume, { id: this.id }, controlOnly(options));
    return this.#take(sandbox);
  }

  /**
   * Puts it to sleep: its files go to the broker's disk, and its processes and memory away. It keeps its id, and
   * outlasts the broker and the host. The next call that needs it wakes it up in a few milliseconds. `stop`: cancel the
   * jobs that run in it first; otherwise there must be none. `lastSleep` of the result says what ended with its
   * processes. Rejects with FailedPreconditionError (jobs run, or it is paused), AbortedError (another call needed it
   * meanwhile) and ResourceExhaustedError (the quota or the disk is full).
   */
  async sleep(options: { stop?: boolean } & CallControl = {}): Promise<SandboxInfo> {
    knownOptions(options, { ...OPTIONS.control, stop: true });
    const request = { id: this.id, stop: options.stop ?? false };
    const { sandbox } = await this.#client.unary(SandboxService.method.sleep, request, controlOf(options));
    return this.#take(sandbox);
  }

  /**
   * Wakes it up; does nothing if it is awake. Every call that needs it does the same. Rejects with
   * FailedPreconditionError (its template or a volume has gone), ResourceExhaustedError (too many sandboxes) and
   * DataLossError (its files are damaged); then it stays asleep.
   */
  async wake(options: CallControl = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#client.unary(SandboxService.method.wake, { id: this.id }, controlOnly(options));
    return this.#take(sandbox);
  }

  /**
   * Kills every job in it and removes it; nothing of it is left on the host when this resolves. Does nothing if it does
   * not exist any more. Rejects with UnavailableError if the broker cannot be reached.
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

  #start(
    args: readonly string[],
    options: CommandOptions & CallControl,
    inline: Uint8Array,
    mode: StartMode,
  ): Promise<Process> {
    return startProcess(this.#client, this.id, args, options, inline, mode, (id, again) => this.attach(id, again));
  }
}
