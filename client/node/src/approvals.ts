// SPDX-License-Identifier: Apache-2.0
// Approvals: calls that wait until an approver has agreed.
import { setTimeout as sleep } from "node:timers/promises";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Client } from "./client.js";
import { BrokerUnreachableError, UnavailableError } from "./errors.js";
import { ApprovalReach, ApprovalService, ApprovalState as StateNumber } from "./gen/stockade/v1/approval_service_pb.js";
import type { Approval as ApprovalMessage } from "./gen/stockade/v1/approval_service_pb.js";
import { controlOf, controlOnly, chosenClient, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { badArgument, count, knownOptions, lifetimeMs, listOf } from "./units.js";
import type { Duration } from "./units.js";

/** Where an approval is. */
export type ApprovalState = "pending" | "approved" | "denied" | "expired" | "cancelled" | "unknown";
type Reach = "once" | "session" | "pattern" | "unknown";

const STATES: ReadonlyMap<StateNumber, ApprovalState> = new Map([
  [StateNumber.PENDING, "pending"],
  [StateNumber.APPROVED, "approved"],
  [StateNumber.DENIED, "denied"],
  [StateNumber.EXPIRED, "expired"],
  [StateNumber.CANCELLED, "cancelled"],
]);
const REACHES: ReadonlyMap<ApprovalReach, Reach> = new Map([
  [ApprovalReach.UNSPECIFIED, "once"],
  [ApprovalReach.ONCE, "once"],
  [ApprovalReach.SESSION, "session"],
  [ApprovalReach.PATTERN, "pattern"],
]);

/** An answer of one approver. */
export interface ApprovalVote {
  /** The principal, such as "team/key:1f0c...". */
  approver: string;
  /** Whether it agreed. */
  agreed: boolean;
  /** Why, in its own words. */
  comment: string;
  /** When. */
  time: Date;
}

/** An approval, as the broker describes it. */
export interface ApprovalInfo {
  /** Names it. */
  id: string;
  /** Tenant of the call. */
  tenant: string;
  /** Principal of the call, such as "team/key:1f0c...". */
  requester: string;
  /** The method, such as "ProcessService/Run". */
  method: string;
  /** What the call is about, such as its command line. The requester wrote it. */
  subject: string;
  /** The request, packed. Empty in lists, and if it is larger than 16 KiB. */
  request: Uint8Array;
  /** Its size in bytes. */
  requestSize: number;
  /** BLAKE2b-256 of the method and the request. */
  digest: Uint8Array;
  /** The rule that asks; "": the requester asked by itself. */
  rule: string;
  /** Why it asks. */
  reason: string;
  /** Who may answer, tenants or principals; none: all of its tenant with the right, and operators. */
  approvers: string[];
  /** How many of them must agree. */
  needed: number;
  /** Where it is. */
  state: ApprovalState;
  /** Time of its creation. */
  created: Date;
  /** Pending: it is denied if nobody has answered until then. */
  expires: Date;
  /** The answers so far. */
  votes: ApprovalVote[];
  /** Approved: the call once, as often as it is made ("session"), or calls like `pattern`. */
  reach: "once" | "session" | "pattern" | "unknown" | null;
  /** Approved: command lines that are permitted; "": that of this call. */
  pattern: string;
  /** Approved: until when it may be used. */
  validUntil: Date | null;
  /** How often it was used. */
  uses: number;
  /** When it ended; null: it is pending. */
  ended: Date | null;
  /** Increases with each change of any approval: for `Approval.watch`. */
  revision: bigint;
}

/** Options of `Approval.create`. */
export interface ApprovalCreateOptions extends CallControl {
  /** Why, for the approvers. */
  reason?: string;
  /** How long it may stay pending, at most 7 days. Default: 10 minutes. */
  timeout?: Duration;
  /**
   * Who may answer: tenants such as "team" or "uid:0", or principals. Default: all of the caller's tenant with the
   * right, and operators.
   */
  approvers?: readonly string[];
  /** How many of them must agree. Default: 1. */
  needed?: number;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

/** Options of `Approval.approve`. */
export interface ApproveOptions extends CallControl {
  /** Permit command lines like this one, in which "*" stands for any text. Default: the same call. */
  pattern?: string;
  /** Permit it for so long, as often as it is made, such as "1h". Default: once, or 8 hours with `pattern`. */
  ttl?: Duration;
  /** Why. */
  comment?: string;
}

function dateOf(stamp: Timestamp | undefined): Date {
  return new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6));
}

function stateNumber(state: ApprovalState): StateNumber {
  const found = [...STATES].find(([, name]) => name === state);
  if (found === undefined) {
    throw badArgument("state", `must be one of ${[...STATES.values()].join(", ")}`);
  }
  return found[0];
}

// Longer with each failure, up to a second; ends early with the signal.
async function pause(failures: number, signal: AbortSignal | undefined): Promise<void> {
  const ms = Math.min(50 * 2 ** Math.min(failures, 5), 1000);
  await sleep(ms, undefined, signal === undefined ? {} : { signal }).catch(() => undefined);
}

function approvalInfo(message: ApprovalMessage | undefined): ApprovalInfo {
  const grant = message?.grant;
  return {
    id: message?.id ?? "",
    tenant: message?.tenant ?? "",
    requester: message?.requester ?? "",
    method: message?.method ?? "",
    subject: message?.subject ?? "",
    request: message?.request ?? new Uint8Array(),
    requestSize: Number(message?.requestBytes ?? 0n),
    digest: message?.digest ?? new Uint8Array(),
    rule: message?.rule ?? "",
    reason: message?.reason ?? "",
    approvers: [...(message?.approvers ?? [])],
    needed: message?.needed ?? 0,
    state: STATES.get(message?.state ?? StateNumber.UNSPECIFIED) ?? "unknown",
    created: dateOf(message?.createTime),
    expires: dateOf(message?.expireTime),
    votes: (message?.votes ?? []).map(({ approver, agreed, comment, time }) => ({
      approver,
      agreed,
      comment,
      time: dateOf(time),
    })),
    reach: grant === undefined ? null : REACHES.get(grant.reach) ?? "unknown",
    pattern: grant?.pattern ?? "",
    validUntil: message?.validUntil === undefined ? null : dateOf(message.validUntil),
    uses: Number(message?.uses ?? 0n),
    ended: message?.endTime === undefined ? null : dateOf(message.endTime),
    revision: message?.revision ?? 0n,
  };
}

/**
 * A call that waits until an approver has agreed. A call that needs one rejects with ApprovalPendingError; its option
 * `approvalWait` lets it wait. Its approvers watch and answer.
 *
 * @example
 * for await (const info of Approval.watch()) {
 *   if (info.state === "pending" && info.subject === "deploy --staging") {
 *     await (await Approval.connect(info.id)).approve({ comment: "fine" });
 *   }
 * }
 */
export class Approval {
  readonly #client: Client;
  #info: ApprovalInfo;

  private constructor(client: Client, info: ApprovalInfo) {
    this.#client = client;
    this.#info = info;
  }

  /**
   * Asks for the approval of a call before it is made: of this method, such as "ProcessService/Run", with this packed
   * request. Resolves to the pending one of the same call, if there is one. Rejects with InvalidArgumentError and
   * ResourceExhaustedError (too many are pending).
   */
  static async create(method: string, request: Uint8Array, options: ApprovalCreateOptions = {}): Promise<Approval> {
    const own = { reason: true, timeout: true, approvers: true, needed: true, client: true } as const;
    knownOptions(options, { ...OPTIONS.control, ...own });
    const client = chosenClient(options.client);
    const asked = {
      method,
      request,
      reason: options.reason ?? "",
      timeoutMs: lifetimeMs(options.timeout, "timeout"),
      approvers: [...listOf(options.approvers, "approvers")],
      needed: count(options.needed ?? 1, "needed"),
    };
    const { approval } = await client.unary(ApprovalService.method.create, asked, controlOf(options));
    return new Approval(client, approvalInfo(approval));
  }

  /** Finds an approval, with its request. Rejects with NotFoundError: the caller may see none such. */
  static async connect(id: string, options: { client?: Client } & CallControl = {}): Promise<Approval> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    const { approval } = await client.unary(ApprovalService.method.get, { id }, controlOf(options));
    return new Approval(client, approvalInfo(approval));
  }

  /**
   * Approvals, oldest first, without their requests: of the caller's tenant, and those that name the caller as an
   * approver; with `tenant` those of another one, or of all ("*"), which needs an operator. Rejects with a
   * StockadeError.
   */
  static async *list(
    options: { state?: ApprovalState; tenant?: string; client?: Client } & CallControl = {},
  ): AsyncGenerator<ApprovalInfo, void, undefined> {
    knownOptions(options, { ...OPTIONS.control, state: true, tenant: true, client: true });
    const client = chosenClient(options.client);
    const state = options.state === undefined ? StateNumber.UNSPECIFIED : stateNumber(options.state);
    let pageToken = "";
    do {
      const request = { pageSize: 1000, pageToken, tenant: options.tenant ?? "", state };
      const page = await client.unary(ApprovalService.method.list, request, controlOf(options));
      yield* page.approvals.map(approvalInfo);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /**
   * Approvals as they change: first the pending ones, or those that changed after the revision `afterRevision`, then
   * each change. With `id` only that one: the iteration ends when it is not pending any more. It continues when the
   * broker is restarted, and misses no approval. Rejects with a StockadeError.
   */
  static async *watch(
    options: { id?: string; tenant?: string; afterRevision?: bigint; client?: Client } & CallControl = {},
  ): AsyncGenerator<ApprovalInfo, void, undefined> {
    const own = { id: true, tenant: true, afterRevision: true, client: true } as const;
    knownOptions(options, { ...OPTIONS.control, ...own });
    const client = chosenClient(options.client);
    const { id = "", tenant = "" } = options;
    let { afterRevision = 0n } = options;
    for (let failures = 0, seen = -1n; ; failures++) {
      try {
        const request = { id, tenant, afterRevision };
        for await (const { approval } of client.stream(ApprovalService.method.watch, request, controlOf(options))) {
          const info = approvalInfo(approval);
          failures = 0;
          if (info.revision !== seen) {
            seen = afterRevision = info.revision;
            yield info;
          }
        }
        return;
      } catch (e) {
        const never = e instanceof BrokerUnreachableError && failures === 0 && seen < 0n;
        if (!(e instanceof UnavailableError) || never || client.closed) {
          throw e;
        }
      }
      await pause(failures, options.signal);
    }
  }

  /** Its id. */
  get id(): string {
    return this.#info.id;
  }

  /** The last state that the broker sent. */
  get info(): ApprovalInfo {
    return this.#info;
  }

  /** Requests its state again. Rejects with NotFoundError. */
  async refresh(options: CallControl = {}): Promise<ApprovalInfo> {
    const { approval } = await this.#client.unary(ApprovalService.method.get, { id: this.id }, controlOnly(options));
    return this.#keep(approval);
  }

  /**
   * Agrees to the call that `info` shows. It is still pending if further approvers are needed. Rejects with
   * PermissionDeniedError (the caller is the requester, or no approver), FailedPreconditionError (it is not pending any
   * more) and AlreadyExistsError (the caller has agreed before).
   */
  async approve(options: ApproveOptions = {}): Promise<ApprovalInfo> {
    knownOptions(options, { ...OPTIONS.control, pattern: true, ttl: true, comment: true });
    const { pattern, ttl } = options;
    const reach = pattern === undefined ? ApprovalReach.SESSION : ApprovalReach.PATTERN;
    const grant = { reach, pattern: pattern ?? "", ttlMs: lifetimeMs(ttl) };
    const request = {
      id: this.id,
      comment: options.comment ?? "",
      digest: this.#info.digest,
      ...(pattern === undefined && ttl === undefined ? {} : { grant }),
    };
    const { approval } = await this.#client.unary(ApprovalService.method.approve, request, controlOf(options));
    return this.#keep(approval);
  }

  /** Refuses, for all approvers; the requester sees the comment. Rejects with the errors of `approve`. */
  async deny(options: { comment?: string } & CallControl = {}): Promise<ApprovalInfo> {
    knownOptions(options, { ...OPTIONS.control, comment: true });
    const request = { id: this.id, comment: options.comment ?? "" };
    const { approval } = await this.#client.unary(ApprovalService.method.deny, request, controlOf(options));
    return this.#keep(approval);
  }

  /**
   * Withdraws it, or what it still permits. Rejects with PermissionDeniedError (the caller is neither its requester nor
   * an operator) and FailedPreconditionError (it has ended).
   */
  async cancel(options: CallControl = {}): Promise<ApprovalInfo> {
    const { approval } = await this.#client.unary(ApprovalService.method.cancel, { id: this.id }, controlOnly(options));
    return this.#keep(approval);
  }

  #keep(message: ApprovalMessage | undefined): ApprovalInfo {
    this.#info = approvalInfo(message);
    return this.#info;
  }
}
