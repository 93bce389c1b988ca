// SPDX-License-Identifier: Apache-2.0
// The audit log of the broker: read it, follow it, prove one record of it.
import { setTimeout as sleep } from "node:timers/promises";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Client } from "./client.js";
import { BrokerUnreachableError, UnavailableError } from "./errors.js";
import { AuditPhase as PhaseNumber } from "./gen/stockade/v1/audit_pb.js";
import type { AuditProof, AuditRecord as RecordMessage } from "./gen/stockade/v1/audit_pb.js";
import { AuditService } from "./gen/stockade/v1/audit_service_pb.js";
import { controlOf, chosenClient, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { badArgument, knownOptions, listOf } from "./units.js";

/** What a record is about. */
export type AuditKind = "start" | "stop" | "call" | "job" | "change" | "gap" | "checkpoint" | "unknown";
/** How far a call came. */
export type AuditPhase = "began" | "ended" | "refused";

const PHASES: ReadonlyMap<string, PhaseNumber> = new Map([
  ["began", PhaseNumber.BEGAN],
  ["ended", PhaseNumber.ENDED],
  ["refused", PhaseNumber.REFUSED],
]);

/** A record of the audit log. */
export interface AuditRecord {
  /** From 1, without a gap, over all tenants. */
  sequence: bigint;
  /** When it happened, by the host's clock on the wall. */
  time: Date;
  /** What it is about. */
  kind: AuditKind;
  /** Calls and jobs: whose; otherwise "". */
  tenant: string;
  /** All of it. Texts in it that callers or jobs wrote are data. */
  message: RecordMessage;
}

/** Which records: those that fit all that is set. */
export interface AuditFilterOptions extends CallControl {
  /** Default: all but checkpoints. */
  kinds?: readonly AuditKind[];
  /** Calls of this method, such as "SandboxService/Create", or of a whole service. */
  method?: string;
  /** Calls of this phase. */
  phase?: AuditPhase;
  /** Calls with an object of exactly this value, such as a sandbox's id, and jobs with this id or sandbox. */
  object?: string;
  /** From this time on. */
  since?: Date;
  /** Before this time. */
  until?: Date;
  /** Those after this sequence. */
  afterSequence?: bigint;
  /** Another tenant, or "*" for all, which needs an operator. Default: the caller's own. */
  tenant?: string;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

const OWN = {
  kinds: true,
  method: true,
  phase: true,
  object: true,
  since: true,
  until: true,
  afterSequence: true,
  tenant: true,
  client: true,
} as const;

function auditRecord(message: RecordMessage): AuditRecord {
  const { body, time } = message;
  const tenant = body.case === "call" || body.case === "job" ? body.value.tenant : "";
  const ms = Number(time?.seconds ?? 0n) * 1000 + Math.floor((time?.nanos ?? 0) / 1e6);
  return { sequence: message.sequence, time: new Date(ms), kind: body.case ?? "unknown", tenant, message };
}

function filterOf(options: AuditFilterOptions) {
  knownOptions(options, { ...OPTIONS.control, ...OWN });
  const phase = options.phase === undefined ? PhaseNumber.UNSPECIFIED : PHASES.get(options.phase);
  if (phase === undefined) {
    throw badArgument("phase", `must be one of ${[...PHASES.keys()].join(", ")}`);
  }
  return {
    kinds: [...listOf(options.kinds, "kinds")],
    method: options.method ?? "",
    phase,
    object: options.object ?? "",
    ...(options.since === undefined ? {} : { sinceTime: timestampFromDate(options.since) }),
    ...(options.until === undefined ? {} : { untilTime: timestampFromDate(options.until) }),
  };
}

/**
 * The audit log of the broker: the caller's own calls and jobs. Its functions reject with a StockadeError.
 *
 * @example
 * for await (const record of AuditLog.records({ kinds: ["call"], phase: "refused" })) {
 *   console.log(record.time, record.message.body);
 * }
 */
export const AuditLog = {
  /** Records, oldest first. Rejects with a StockadeError. */
  async *records(options: AuditFilterOptions = {}): AsyncGenerator<AuditRecord, void, undefined> {
    const filter = filterOf(options);
    const client = chosenClient(options.client);
    const { tenant = "", afterSequence = 0n } = options;
    let pageToken = "";
    do {
      const request = { pageSize: 1000, pageToken, tenant, filter, afterSequence };
      const page = await client.unary(AuditService.method.list, request, controlOf(options));
      yield* page.records.map(auditRecord);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  },

  /**
   * Records as they are written: those after `afterSequence`, or only new ones. It continues when the broker is
   * restarted, and misses no record. Rejects with a StockadeError.
   */
  async *watch(options: AuditFilterOptions = {}): AsyncGenerator<AuditRecord, void, undefined> {
    const filter = filterOf(options);
    const client = chosenClient(options.client);
    const { tenant = "" } = options;
    let { afterSequence = 0n } = options;
    for (let failures = 0, seen = false; ; failures++) {
      try {
        const request = { tenant, filter, afterSequence };
        for await (const { record } of client.stream(AuditService.method.watch, request, controlOf(options))) {
          failures = 0;
          if (record !== undefined) {
            seen = true;
            afterSequence = record.sequence;
            yield auditRecord(record);
          }
        }
        return;
      } catch (e) {
        const never = e instanceof BrokerUnreachableError && failures === 0 && !seen;
        if (!(e instanceof UnavailableError) || never || client.closed) {
          throw e;
        }
      }
      const ms = Math.min(50 * 2 ** Math.min(failures, 5), 1000);
      await sleep(ms, undefined, options.signal === undefined ? {} : { signal: options.signal }).catch(() => undefined);
    }
  },

  /**
   * A job's record with all that is needed to check it by the public key alone. Waits for the next checkpoint if none
   * covers it yet. Rejects with NotFoundError.
   */
  async prove(
    processId: string,
    options: { tenant?: string; client?: Client } & CallControl = {},
  ): Promise<AuditProof | undefined> {
    knownOptions(options, { ...OPTIONS.control, tenant: true, client: true });
    const client = chosenClient(options.client);
    const request = { processId, tenant: options.tenant ?? "" };
    const { proof } = await client.unary(AuditService.method.getProof, request, controlOf(options));
    return proof;
  },
} as const;
