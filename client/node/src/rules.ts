// SPDX-License-Identifier: Apache-2.0
// Detection rules of the caller. See proto/stockade/v1/rules_service.proto.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Client } from "./client.js";
import type { DetectionEventSchema } from "./gen/stockade/v1/detection_pb.js";
import { Severity } from "./gen/stockade/v1/record_pb.js";
import { RuleOrigin as OriginNumber, RulesService } from "./gen/stockade/v1/rules_service_pb.js";
import type { RuleFile as FileMessage, RuleState } from "./gen/stockade/v1/rules_service_pb.js";
import { EventKind } from "./gen/stockade/v1/telemetry_service_pb.js";
import { controlOf, chosenClient, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { badArgument, knownOptions, listOf } from "./units.js";

/** Who wrote a rule. */
export type RuleOrigin = "tenant" | "host" | "tripwire";

/** How grave a finding is. */
export type RuleSeverity = "info" | "notice" | "warning" | "critical";

/** YAML or JSON with the keys of stockade-rules(5), or the same as an object. */
export type RuleText = string | { rules: readonly object[]; sets?: readonly object[] };

/** A file of rules that the broker keeps. */
export interface RuleFile {
  /** Unique among the tenant's files. */
  name: string;
  /** Its text; "" in lists. */
  text: string;
  /** When it was created. */
  created: Date;
  /** When its text was last replaced. */
  updated: Date;
  /** Rules that were switched off, by id. */
  disabled: string[];
  /** Why its rules are not in force; "": they are. */
  error: string;
}

/** A detection rule, and what it has found. */
export interface RuleInfo {
  /** Its name. */
  id: string;
  /** Who wrote it. */
  origin: RuleOrigin;
  /** It finds something. */
  enabled: boolean;
  /** What it finds and why that matters. */
  description: string;
  /** Of its findings. */
  severity: RuleSeverity;
  /** "log", "alert", "throttle", "pause", "kill" or "deny-network". */
  response: string;
  /** A snapshot of the sandbox is taken before the response. */
  snapshotFirst: boolean;
  /** The rule as it counts, in YAML, without its tests. */
  definition: string;
  /** The score at which it is a finding. */
  threshold: number;
  /** The time over which it counts. */
  windowMs: number;
  /** Techniques of MITRE ATT&CK, and other words. */
  tags: string[];
  /** Its file; of rules of the host only for operators. */
  file: string;
  /** The line in the file. */
  line: number;
  /** The number of its tests. */
  tests: number;
  /** Events that it was compared with. */
  compared: number;
  /** Those that matched. */
  matched: number;
  /** Its findings. */
  findings: number;
}

/** The rules of a tenant. */
export interface RuleList {
  /** Without their texts. */
  files: RuleFile[];
  /** By file; then those of the host. */
  rules: RuleInfo[];
  /** Events that were not compared, because comparing took too long. */
  skipped: number;
}

/** An event for `Rules.test`: its kind, such as "exec", and the fields that stockade-rules(5) names. */
export type RuleEvent = Omit<MessageInitShape<typeof DetectionEventSchema>, "kind" | "$typeName"> & { kind: string };

/** A finding that there would have been. */
export interface RuleFinding {
  /** The event, from 1; with `times` each one counts. */
  event: number;
  /** The id of the rule. */
  rule: string;
  /** Its severity. */
  severity: RuleSeverity;
  /** Its response. */
  response: string;
  /** Its sentence. */
  text: string;
  /** What was reached. */
  score: number;
  /** From where on it is a finding. */
  threshold: number;
}

/** Options of the functions of `Rules`. */
export interface RuleOptions extends CallControl {
  /** Another tenant, which needs an operator. */
  tenant?: string;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

const SEVERITIES: ReadonlyMap<Severity, RuleSeverity> = new Map([
  [Severity.INFO, "info"],
  [Severity.NOTICE, "notice"],
  [Severity.WARNING, "warning"],
  [Severity.CRITICAL, "critical"],
]);

const ORIGINS: ReadonlyMap<OriginNumber, RuleOrigin> = new Map([
  [OriginNumber.TENANT, "tenant"],
  [OriginNumber.HOST, "host"],
  [OriginNumber.TRIPWIRE, "tripwire"],
]);

function dateOf(stamp: Timestamp | undefined): Date {
  return new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6));
}

function ruleFile(message: FileMessage | undefined): RuleFile {
  return {
    name: message?.name ?? "",
    text: message?.text ?? "",
    created: dateOf(message?.createTime),
    updated: dateOf(message?.updateTime),
    disabled: [...(message?.disabled ?? [])],
    error: message?.error ?? "",
  };
}

function ruleInfo(message: RuleState): RuleInfo {
  return {
    id: message.id,
    origin: ORIGINS.get(message.origin) ?? "host",
    enabled: message.enabled,
    description: message.description,
    severity: SEVERITIES.get(message.severity) ?? "info",
    response: message.response,
    snapshotFirst: message.snapshotFirst,
    definition: message.definition,
    threshold: Number(message.threshold),
    windowMs: Number(message.windowMs),
    tags: [...message.tags],
    file: message.file,
    line: message.line,
    tests: message.tests,
    compared: Number(message.compared),
    matched: Number(message.matched),
    findings: Number(message.findings),
  };
}

function textOf(text: RuleText): string {
  return typeof text === "string" ? text : JSON.stringify(text);
}

function eventOf(event: RuleEvent): MessageInitShape<typeof DetectionEventSchema> {
  const kind = (EventKind as unknown as Record<string, EventKind | undefined>)[event.kind.toUpperCase()];
  if (kind === undefined) {
    throw badArgument("kind", `"${event.kind}" is no kind of events, such as "exec"`);
  }
  return { ...event, kind };
}

const OWN = { ...OPTIONS.control, client: true } as const;
const TENANT = { ...OWN, tenant: true } as const;

function clientOf<T extends { client?: Client }>(options: T, known: Readonly<Record<keyof T, true>>): Client {
  knownOptions(options, known);
  return chosenClient(options.client);
}

/**
 * Detection rules of the caller, for its own sandboxes: stockade-rules(5). Its functions reject with a StockadeError.
 *
 * @example
 * const match = { kinds: ["exec"], all: [{ executable: { suffix: ["/nc"] } }] };
 * await Rules.set("mine", { rules: [{ id: "nc", severity: "warning", message: "{arguments}", match }] });
 */
export const Rules = {
  /**
   * Creates or replaces a file; returns its rules. Rejects with InvalidArgumentError (with file, line and column;
   * nothing has changed), AlreadyExistsError (the host has a rule of this id) and ResourceExhaustedError.
   */
  async set(name: string, text: RuleText, options: Omit<RuleOptions, "tenant"> = {}): Promise<RuleInfo[]> {
    const request = { name, text: textOf(text) };
    const { rules } = await clientOf(options, OWN).unary(RulesService.method.set, request, controlOf(options));
    return rules.map(ruleInfo);
  },

  /** A file with its text. Rejects with NotFoundError. */
  async get(name: string, options: RuleOptions = {}): Promise<RuleFile> {
    const request = { name, tenant: options.tenant ?? "" };
    const { file } = await clientOf(options, TENANT).unary(RulesService.method.get, request, controlOf(options));
    return ruleFile(file);
  },

  /** All files and rules; with `host` also the rules of the host, with its tripwires. Rejects with a StockadeError. */
  async list(options: RuleOptions & { host?: boolean } = {}): Promise<RuleList> {
    const client = clientOf(options, { ...TENANT, host: true });
    const request = { tenant: options.tenant ?? "", host: options.host ?? false };
    const all = await client.unary(RulesService.method.list, request, controlOf(options));
    return { files: all.files.map(ruleFile), rules: all.rules.map(ruleInfo), skipped: Number(all.skipped) };
  },

  /** Removes a file with its rules. Rejects with NotFoundError. */
  async delete(name: string, options: RuleOptions = {}): Promise<void> {
    const request = { name, tenant: options.tenant ?? "" };
    await clientOf(options, TENANT).unary(RulesService.method.delete, request, controlOf(options));
  },

  /** Switches a rule on, by its id. Rejects with NotFoundError and FailedPreconditionError. */
  async enable(rule: string, options: RuleOptions = {}): Promise<void> {
    const request = { rule, tenant: options.tenant ?? "" };
    await clientOf(options, TENANT).unary(RulesService.method.enable, request, controlOf(options));
  },

  /** Switches a rule off, by its id. Rejects with NotFoundError, or FailedPreconditionError (it is one of the host). */
  async disable(rule: string, options: RuleOptions = {}): Promise<void> {
    const request = { rule, tenant: options.tenant ?? "" };
    await clientOf(options, TENANT).unary(RulesService.method.disable, request, controlOf(options));
  },

  /** Reads a file as `set` would, and runs the tests of its rules; nothing changes. Rejects as `set` does. */
  async check(name: string, text: RuleText, options: Omit<RuleOptions, "tenant"> = {}): Promise<RuleInfo[]> {
    const request = { name, text: textOf(text) };
    const { rules } = await clientOf(options, OWN).unary(RulesService.method.check, request, controlOf(options));
    return rules.map(ruleInfo);
  },

  /**
   * Compares events with the rules of a text, or with the caller's; no response follows, and no finding is kept.
   * Rejects with a StockadeError.
   */
  async test(
    events: readonly RuleEvent[],
    options: Omit<RuleOptions, "tenant"> & { text?: RuleText } = {},
  ): Promise<RuleFinding[]> {
    const client = clientOf(options, { ...OWN, text: true });
    const request = { text: textOf(options.text ?? ""), events: listOf(events, "events").map(eventOf) };
    const { findings } = await client.unary(RulesService.method.test, request, controlOf(options));
    return findings.map((f) => ({
      event: f.event,
      rule: f.rule,
      severity: SEVERITIES.get(f.severity) ?? "info",
      response: f.response,
      text: f.text,
      score: f.score,
      threshold: f.threshold,
    }));
  },
} as const;
