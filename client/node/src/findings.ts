// SPDX-License-Identifier: Apache-2.0
// Suspicious behaviour in sandboxes, who has handled it, and silences. See proto/stockade/v1/anomaly_service.proto.
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Client } from "./client.js";
import { AnomalyService } from "./gen/stockade/v1/anomaly_service_pb.js";
import type { Silence as SilenceMessage } from "./gen/stockade/v1/anomaly_service_pb.js";
import { Severity } from "./gen/stockade/v1/record_pb.js";
import type { Finding as FindingMessage } from "./gen/stockade/v1/record_pb.js";
import { controlOf, chosenClient, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { knownOptions, lifetimeMs } from "./units.js";
import type { Duration } from "./units.js";

/** How grave a finding is. */
export type FindingSeverity = "info" | "notice" | "warning" | "critical";

/** A person has handled a finding. */
export interface Acknowledgement {
  /** Who, such as "uid:1000". */
  by: string;
  /** An operator of the host did, and not the tenant. */
  byHost: boolean;
  /** When. */
  time: Date;
  /** Why, as given. */
  reason: string;
}

/** Suspicious behaviour in a sandbox. */
export interface Finding {
  /** Its number. */
  sequence: number;
  /** The run of the broker that numbered it. */
  instance: string;
  /** When. */
  time: Date;
  /** The rule that found it. */
  rule: string;
  /** Its severity. */
  severity: FindingSeverity;
  /** One sentence with the figures. */
  text: string;
  /** What was reached. */
  score: number;
  /** From where on it is a finding. */
  threshold: number;
  /** "log", "alert", "throttle", "pause", "kill" or "deny-network". */
  response: string;
  /** The sandbox. */
  sandboxId: string;
  /** The job; "": it is about the sandbox as a whole. */
  processId: string;
  /** The sandbox's template. */
  template: string;
  /** The silence that applied; "": none. */
  silenceId: string;
  /** Because of it, no alert was raised. */
  silenced: boolean;
  /** Who has handled it. */
  acknowledgements: Acknowledgement[];
}

/** No alert is raised for findings of a rule for a while. */
export interface Silence {
  /** Names it. */
  id: string;
  /** Whose sandboxes; "*": of all tenants. */
  tenant: string;
  /** The rule. */
  rule: string;
  /** Only of this sandbox; "": any. */
  sandboxId: string;
  /** Only of this template; "": any. */
  template: string;
  /** Only about processes with this name; "": any. */
  comm: string;
  /** Why, as given. */
  reason: string;
  /** Who made it. */
  createdBy: string;
  /** An operator of the host made it. */
  byHost: boolean;
  /** When it was made. */
  created: Date;
  /** When it ends. */
  expires: Date;
  /** The response is suppressed as well. */
  suppressResponse: boolean;
  /** Findings that it applied to since the broker started. */
  findings: number;
}

/** Options of the functions of `Findings`. */
export interface FindingOptions extends CallControl {
  /** Another tenant, or "*" for all, which needs an operator. */
  tenant?: string;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

/** Options of `Findings.silence`. */
export interface SilenceOptions extends FindingOptions {
  /** Only of this sandbox, by id. */
  sandbox?: string;
  /** Only of this template. */
  template?: string;
  /** Only about processes with this name. */
  comm?: string;
  /** Do not throttle, pause or kill, either. */
  suppressResponse?: boolean;
}

const SEVERITIES: ReadonlyMap<Severity, FindingSeverity> = new Map([
  [Severity.INFO, "info"],
  [Severity.NOTICE, "notice"],
  [Severity.WARNING, "warning"],
  [Severity.CRITICAL, "critical"],
]);

const KNOWN = { ...OPTIONS.control, client: true, tenant: true } as const;

function dateOf(stamp: Timestamp | undefined): Date {
  return new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6));
}

function findingOf(m: FindingMessage): Finding {
  return {
    sequence: Number(m.sequence),
    instance: m.instance,
    time: dateOf(m.time),
    rule: m.rule,
    severity: SEVERITIES.get(m.severity) ?? "info",
    text: m.text,
    score: m.score,
    threshold: m.threshold,
    response: m.response,
    sandboxId: m.sandboxId,
    processId: m.processId,
    template: m.template,
    silenceId: m.silenceId,
    silenced: m.silenced,
    acknowledgements: m.acknowledgements.map((a) => ({
      by: a.by,
      byHost: a.byHost,
      time: dateOf(a.time),
      reason: a.reason,
    })),
  };
}

function silenceOf(m: SilenceMessage | undefined): Silence {
  return {
    id: m?.id ?? "",
    tenant: m?.tenant ?? "",
    rule: m?.rule ?? "",
    sandboxId: m?.sandboxId ?? "",
    template: m?.template ?? "",
    comm: m?.comm ?? "",
    reason: m?.reason ?? "",
    createdBy: m?.createdBy ?? "",
    byHost: m?.byHost ?? false,
    created: dateOf(m?.createTime),
    expires: dateOf(m?.expireTime),
    suppressResponse: m?.suppressResponse ?? false,
    findings: Number(m?.findings ?? 0n),
  };
}

function clientOf<T extends { client?: Client }>(options: T, known: Readonly<Record<keyof T, true>>): Client {
  knownOptions(options, known);
  return chosenClient(options.client);
}

/**
 * Suspicious behaviour in the caller's sandboxes; who has handled it; and silences. Its functions reject with a
 * StockadeError.
 *
 * @example
 * for await (const f of Findings.list()) await Findings.acknowledge(f.sequence, { reason: "a test" });
 * await Findings.silence("mass-rename", "2h", "a codemod");
 */
export const Findings = {
  /** The findings that the broker keeps, oldest first: of a sandbox (by id), of a rule, after a number. */
  async *list(
    options: FindingOptions & { sandbox?: string; rule?: string; after?: number } = {},
  ): AsyncGenerator<Finding, void, undefined> {
    const client = clientOf(options, { ...KNOWN, sandbox: true, rule: true, after: true });
    const request = {
      sandboxId: options.sandbox ?? "",
      rule: options.rule ?? "",
      afterSequence: BigInt(options.after ?? 0),
      tenant: options.tenant ?? "",
      instance: "",
    };
    for (let more = true; more; ) {
      const page = await client.unary(AnomalyService.method.listFindings, request, controlOf(options));
      for (const m of page.findings) yield findingOf(m);
      request.afterSequence = page.lastSequence;
      request.instance = page.instance;
      more = page.more;
    }
  },

  /**
   * Notes that a person has handled a finding, by its number; with `withdraw`, takes that back. Rejects with
   * NotFoundError.
   */
  async acknowledge(
    sequence: number,
    options: FindingOptions & { reason?: string; instance?: string; withdraw?: boolean } = {},
  ): Promise<void> {
    const client = clientOf(options, { ...KNOWN, reason: true, instance: true, withdraw: true });
    const request = {
      sequence: BigInt(sequence),
      instance: options.instance ?? "",
      reason: options.reason ?? "",
      withdraw: options.withdraw ?? false,
      tenant: options.tenant ?? "",
    };
    await client.unary(AnomalyService.method.acknowledgeFinding, request, controlOf(options));
  },

  /** The acknowledged findings, also of earlier runs of the broker. Rejects with a StockadeError. */
  async *acknowledged(options: FindingOptions = {}): AsyncGenerator<Finding, void, undefined> {
    const client = clientOf(options, KNOWN);
    const request = { tenant: options.tenant ?? "", pageToken: "" };
    do {
      const page = await client.unary(AnomalyService.method.listAcknowledged, request, controlOf(options));
      for (const m of page.findings) yield findingOf(m);
      request.pageToken = page.nextPageToken;
    } while (request.pageToken !== "");
  },

  /**
   * Raises no alert for findings of a rule for a while, such as "2h". They are kept, counted and published as before,
   * and the response follows all the same; of a rule that the tenant did not write, the host's alerts remain, too.
   * Rejects with InvalidArgumentError, PermissionDeniedError (the response of a rule of the host) and
   * ResourceExhaustedError.
   */
  async silence(rule: string, ttl: Duration, reason: string, options: SilenceOptions = {}): Promise<Silence> {
    const known = { ...KNOWN, sandbox: true, template: true, comm: true, suppressResponse: true } as const;
    const client = clientOf(options, known);
    const request = {
      rule,
      sandboxId: options.sandbox ?? "",
      template: options.template ?? "",
      comm: options.comm ?? "",
      reason,
      ttlMs: lifetimeMs(ttl),
      suppressResponse: options.suppressResponse ?? false,
      tenant: options.tenant ?? "",
    };
    const { silence } = await client.unary(AnomalyService.method.createSilence, request, controlOf(options));
    return silenceOf(silence);
  },

  /** The silences in force, oldest first. Rejects with a StockadeError. */
  async *silences(options: FindingOptions = {}): AsyncGenerator<Silence, void, undefined> {
    const client = clientOf(options, KNOWN);
    const request = { tenant: options.tenant ?? "", pageToken: "" };
    do {
      const page = await client.unary(AnomalyService.method.listSilences, request, controlOf(options));
      for (const m of page.silences) yield silenceOf(m);
      request.pageToken = page.nextPageToken;
    } while (request.pageToken !== "");
  },

  /** Ends a silence, by its id. Rejects with NotFoundError, or PermissionDeniedError (the host made it). */
  async unsilence(silenceId: string, options: FindingOptions = {}): Promise<void> {
    const request = { silenceId, tenant: options.tenant ?? "" };
    await clientOf(options, KNOWN).unary(AnomalyService.method.deleteSilence, request, controlOf(options));
  },
} as const;
