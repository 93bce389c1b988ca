// SPDX-License-Identifier: Apache-2.0
// Transactions: changes to the files of a sandbox that take effect together, or not at all (`Sandbox.transaction`).
import { Buffer } from "node:buffer";
import type { Client } from "./client.js";
import { controlOf, controlOnly, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import type { Sandbox } from "./sandbox.js";
import { changeOf, changesOf } from "./snapshots.js";
import type { Change } from "./snapshots.js";
import { TransactionPolicy as PolicyNumber, TransactionService } from "./gen/stockade/v1/transaction_service_pb.js";
import type {
  TransactionOutcome as OutcomeMessage,
  Transaction as TransactionMessage,
} from "./gen/stockade/v1/transaction_service_pb.js";
import { badArgument, knownOptions } from "./units.js";

/** What happens to a transaction when its job has ended: it stays open, or is committed after exit code 0. */
export type TransactionPolicy = "ask" | "on-success";

/** A transaction, as the broker describes it. */
export interface TransactionInfo {
  /** An opaque text; also the id of the sandbox in which its jobs run. */
  id: string;
  /** The sandbox whose files it changes. */
  sandboxId: string;
  /** Time of its begin. */
  created: Date;
  /** Where it is. */
  state: "open" | "committed" | "discarded" | "unknown";
  /** Why the last commit was refused; "": it was not. */
  refused: string;
  /** Paths that the last commit found changed on both sides, at most 100. Empty in lists. */
  conflicts: readonly string[];
}

/** What a job with `transaction` changed, and what became of that. */
export interface TransactionOutcome {
  /** The transaction after the job. */
  info: TransactionInfo;
  /** The first files that it changed, at most 100, sorted by path. */
  changes: readonly Change[];
  /** There are more than these. */
  more: boolean;
  /** Why the changes are not known; "": they are. */
  unknown: string;
}

const STATES: readonly TransactionInfo["state"][] = ["unknown", "open", "committed", "discarded"];

/** @internal A policy as the broker takes it. */
export function policyNumber(policy: TransactionPolicy | undefined): PolicyNumber {
  if (policy === undefined) return PolicyNumber.UNSPECIFIED;
  const number = new Map<string, PolicyNumber>([
    ["ask", PolicyNumber.ASK],
    ["on-success", PolicyNumber.ON_SUCCESS],
  ]).get(policy);
  if (number === undefined) throw badArgument("transaction", 'is "ask" or "on-success"');
  return number;
}

/** @internal What a message says about a transaction. */
export function transactionInfo(message: TransactionMessage | undefined): TransactionInfo {
  const stamp = message?.createTime;
  return {
    id: message?.id ?? "",
    sandboxId: message?.sandboxId ?? "",
    created: new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6)),
    state: STATES[message?.state ?? 0] ?? "unknown",
    refused: message?.refused ?? "",
    conflicts: (message?.conflicts ?? []).map((path) => Buffer.from(path).toString("utf8")),
  };
}

/** @internal What the last message of a job says about its transaction. */
export function outcomeOf(message: OutcomeMessage): TransactionOutcome {
  return {
    info: transactionInfo(message.transaction),
    changes: message.changes.map(changeOf),
    more: message.more,
    unknown: message.unknown,
  };
}

/** @internal All transactions of a sandbox, oldest first. */
export async function* transactionsOf(
  client: Client,
  sandbox: string,
  options: CallControl,
): AsyncGenerator<TransactionInfo, void, undefined> {
  const control = controlOnly(options);
  let pageToken = "";
  do {
    const page = await client.unary(TransactionService.method.list, { sandbox, pageToken }, control);
    yield* page.transactions.map(transactionInfo);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

/**
 * Changes to the files of a sandbox that take effect together, or not at all. With `await using` it is discarded at
 * the end of the block, unless it was committed.
 *
 * @example
 * await using tx = await sbx.transaction();
 * await tx.sandbox.run(["sh", "-c", "make install"], { check: true });
 * await tx.commit();
 */
export class Transaction implements AsyncDisposable {
  readonly #client: Client;
  #info: TransactionInfo;
  /** The sandbox in which its jobs run, with the files as they were at the begin. */
  readonly sandbox: Sandbox;

  /** @internal */
  constructor(client: Client, info: TransactionInfo, sandbox: Sandbox) {
    this.#client = client;
    this.#info = info;
    this.sandbox = sandbox;
  }

  /** An opaque text; also the id of `sandbox`. */
  get id(): string {
    return this.#info.id;
  }

  /** The last answer of the broker about it; `refresh()` requests it again. */
  get info(): TransactionInfo {
    return this.#info;
  }

  /** Requests its current state. Rejects with NotFoundError. */
  async refresh(options: CallControl = {}): Promise<TransactionInfo> {
    const answer = await this.#client.unary(TransactionService.method.get, { id: this.id }, controlOnly(options));
    this.#info = transactionInfo(answer.transaction);
    return this.#info;
  }

  /** The files that it has changed so far, sorted by path. Rejects with NotFoundError and UnavailableError. */
  changes(options: CallControl = {}): AsyncGenerator<Change, void, undefined> {
    const states = { sandboxId: this.id, first: "begin", second: "", path: new Uint8Array() };
    return changesOf(this.#client, states, controlOnly(options));
  }

  /**
   * Gives its changes to its sandbox, and ends it. `stop`: cancel the jobs that run in either sandbox first; otherwise
   * there must be none. Rejects with AbortedError if both sides changed a path (`refresh()` has them in `conflicts`; it
   * stays open), FailedPreconditionError, ResourceExhaustedError (the files do not fit).
   */
  async commit(options: { stop?: boolean } & CallControl = {}): Promise<TransactionInfo> {
    knownOptions(options, { ...OPTIONS.control, stop: true });
    const request = { id: this.id, stop: options.stop ?? false };
    const answer = await this.#client.unary(TransactionService.method.commit, request, controlOf(options));
    this.#info = transactionInfo(answer.transaction);
    return this.#info;
  }

  /** Drops its changes, and ends it. Rejects with FailedPreconditionError if it was committed. */
  async discard(options: CallControl = {}): Promise<TransactionInfo> {
    const answer = await this.#client.unary(TransactionService.method.discard, { id: this.id }, controlOnly(options));
    this.#info = transactionInfo(answer.transaction);
    return this.#info;
  }

  /** Discards it, unless it has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#info.state === "open") await this.discard();
  }
}
