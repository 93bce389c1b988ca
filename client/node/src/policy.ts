// SPDX-License-Identifier: Apache-2.0
// Policies about calls: what they decide, and what they say.
import { create, toBinary } from "@bufbuild/protobuf";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "./client.js";
import { PolicyVerdict } from "./gen/stockade/v1/policy_pb.js";
import type { PolicyCallSchema, PolicyRule } from "./gen/stockade/v1/policy_pb.js";
import { PolicyService } from "./gen/stockade/v1/policy_service_pb.js";
import type { ExplainResponse, PolicyLayerShown } from "./gen/stockade/v1/policy_service_pb.js";
import { RunRequestSchema } from "./gen/stockade/v1/process_service_pb.js";
import { JobMode } from "./gen/stockade/v1/simulation_pb.js";
import { controlOf, chosenClient, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { count, knownOptions, listOf } from "./units.js";

/** What a policy does with a call. */
export type Verdict = "allow" | "limit" | "ask" | "deny" | "unknown";

const VERDICTS: ReadonlyMap<PolicyVerdict, Verdict> = new Map([
  [PolicyVerdict.ALLOW, "allow"],
  [PolicyVerdict.DENY, "deny"],
  [PolicyVerdict.ASK, "ask"],
  [PolicyVerdict.LIMIT, "limit"],
]);

/** What one layer answers about a call. */
export interface PolicyStep {
  /** "rights", "token", "host", "tenant", "template" or "request". */
  kind: string;
  /** Name of the layer; "" for rights and token. */
  layer: string;
  /** The id of its rule; "": none matches. */
  rule: string;
  /** What it decides. */
  verdict: Verdict;
  /** Why. */
  reason: string;
  /** Where the rule, or the layer, is written. */
  file: string;
  /** The line in the file. */
  line: number;
}

/** People that a call would wait for. */
export interface PolicyQuestion {
  /** The rule that asks, as LAYER/ID. */
  rule: string;
  /** Why. */
  reason: string;
  /** Who may approve. */
  approvers: string[];
  /** How many of them must. */
  need: number;
  /** For how long they are asked, in milliseconds. */
  timeoutMs: number;
}

/** What would be decided about a call. */
export interface PolicyDecision {
  /** Of all layers together. */
  verdict: Verdict;
  /** The rule that decides, as LAYER/ID; "": none. */
  rule: string;
  /** Why. */
  reason: string;
  /** Denied: what would be allowed instead. */
  allowed: string;
  /** Denied: the field of the request that it is about. */
  field: string;
  /** Denied because of a rate: milliseconds until the next call. */
  retryMs: number | null;
  /** The answers of all layers. */
  steps: PolicyStep[];
  /** Asked: all of them are needed. */
  questions: PolicyQuestion[];
  /** Limited: the highest limits, such as `{ memory: "64M" }`. */
  limits: Record<string, string>;
  /** Of the policy. */
  digest: Uint8Array;
}

/** A layer of a policy. */
export interface PolicyLayerInfo {
  /** "host", "tenant" or "template". */
  kind: string;
  /** Its name. */
  name: string;
  /** The decision about a call that no rule matches. */
  otherwise: Verdict;
  /** Its rules, in the order in which they are asked, each with its line in the file. */
  rules: { id: string; verdict: Verdict; reason: string; line: number; message: PolicyRule }[];
  /** Where it is written. */
  file: string;
  /** The line in the file. */
  line: number;
}

/** The policy of a caller. */
export interface PolicyInfo {
  /** The layers that apply to its calls, in the order in which they are asked. */
  layers: PolicyLayerInfo[];
  /** Of the whole policy. */
  digest: Uint8Array;
  /** There are more layers than one answer holds. */
  cut: boolean;
}

/** A named set of destinations. */
export interface DestinationSet {
  /** Without "@". */
  name: string;
  /** What it is for. */
  about: string;
  /** What it stands for, such as "pypi.org:443/tcp". */
  destinations: string[];
}

/** Limits as the command's options take them, such as "1G" or "90s". */
export interface PolicyLimits {
  /** Of a sandbox. */
  memory?: string;
  /** Of a sandbox, such as "1.5". */
  cpus?: string;
  /** Of a job. */
  cpuTime?: string;
  /** Of a job. */
  timeout?: string;
  /** Processes and threads. */
  pids?: string;
  /** Bytes that it may write. */
  disk?: string;
  /** Bytes that a job may print. */
  output?: string;
}

/** Options of `Policy.explain`. */
export interface ExplainOptions extends CallControl {
  /** The method. Default: "ProcessService/Run". */
  method?: string;
  /** The request that the call would send, packed; instead of all that describes it. */
  request?: Uint8Array;
  /** The template of the sandbox. */
  template?: string;
  /** The language of code. */
  language?: string;
  /** Paths that the call names. */
  paths?: readonly string[];
  /** What jobs may reach after the call, such as "@pypi". */
  destinations?: readonly string[];
  /** Labels of the sandbox. */
  labels?: Record<string, string>;
  /** Limits in force, such as `{ memory: "1G" }`. */
  limits?: PolicyLimits;
  /** Calls before this one, for rates and histories. */
  callsBefore?: number;
  /** When. Default: now. */
  time?: Date;
  /** The call is simulated. */
  simulate?: boolean;
  /** As whom: another tenant, for operators. */
  tenant?: string;
  /** How the caller proves who it is: "peer", "key", "token", "certificate", "jwt" or "none". */
  credential?: string;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

/** Options of `Policy.show`. */
export interface PolicyShowOptions extends CallControl {
  /** Of another tenant, or "*" for all; for operators. */
  tenant?: string;
  /** Only what may apply to sandboxes of this template. */
  template?: string;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

const WORDS = ["language", "paths", "destinations", "labels", "limits", "callsBefore", "time"] as const;

function verdictOf(value: PolicyVerdict): Verdict {
  return VERDICTS.get(value) ?? "unknown";
}

function decisionOf(m: ExplainResponse): PolicyDecision {
  const limits: Record<string, string> = {};
  for (const name of ["memory", "cpus", "cpuTime", "timeout", "pids", "disk", "output"] as const) {
    const value = m.limits?.[name] ?? "";
    if (value !== "") {
      limits[name] = value;
    }
  }
  return {
    verdict: verdictOf(m.verdict),
    rule: m.rule,
    reason: m.reason,
    allowed: m.allowed,
    field: m.field,
    retryMs: m.retryMs > 0n ? Number(m.retryMs) : null,
    steps: m.steps.map((s) => ({
      kind: s.kind,
      layer: s.layer,
      rule: s.rule,
      verdict: verdictOf(s.verdict),
      reason: s.reason,
      file: s.file,
      line: s.line,
    })),
    questions: m.questions.map((q) => ({
      rule: q.rule,
      reason: q.reason,
      approvers: q.approvers,
      need: q.need,
      timeoutMs: Number(q.timeoutMs),
    })),
    limits,
    digest: m.digest,
  };
}

function layerOf(m: PolicyLayerShown): PolicyLayerInfo {
  const otherwise = m.layer?.otherwise ?? PolicyVerdict.UNSPECIFIED;
  return {
    kind: m.kind,
    name: m.layer?.name ?? "",
    otherwise: otherwise === PolicyVerdict.UNSPECIFIED ? "allow" : verdictOf(otherwise),
    rules: m.rules.flatMap((r) =>
      r.rule === undefined
        ? []
        : [{ id: r.rule.id, verdict: verdictOf(r.rule.verdict), reason: r.rule.reason, line: r.line, message: r.rule }],
    ),
    file: m.file,
    line: m.line,
  };
}

function wordsOf(args: readonly string[], options: ExplainOptions): MessageInitShape<typeof PolicyCallSchema> {
  return {
    method: options.method ?? "",
    template: options.template ?? "",
    command: [...args],
    language: options.language ?? "",
    paths: [...listOf(options.paths, "paths")],
    destinations: [...listOf(options.destinations, "destinations")],
    labels: Object.entries(options.labels ?? {}).map(([key, value]) => `${key}=${value}`),
    limits: options.limits ?? {},
    callsBefore: options.callsBefore === undefined ? 0 : count(options.callsBefore, "callsBefore"),
    mode: options.simulate === true ? "simulate" : "",
    time: options.time === undefined ? "" : options.time.toISOString().replace(/\.\d+Z$/, "Z"),
  };
}

/**
 * The policy of the broker, as far as it is about the caller. Each function rejects with a StockadeError, such as
 * NotFoundError (`explain`: there is no such method) or PermissionDeniedError (about another tenant).
 */
export const Policy = {
  /**
   * What would be decided about a call, which rule decides, and why. The call is not made, nothing is counted, and
   * nobody is asked. `args` is the command. Rejects with NotFoundError: there is no such method.
   */
  async explain(args: readonly string[], options: ExplainOptions = {}): Promise<PolicyDecision> {
    knownOptions(options, {
      ...OPTIONS.control,
      method: true,
      request: true,
      template: true,
      language: true,
      paths: true,
      destinations: true,
      labels: true,
      limits: true,
      callsBefore: true,
      time: true,
      simulate: true,
      tenant: true,
      credential: true,
      client: true,
    });
    const method = options.method ?? "ProcessService/Run";
    const client = chosenClient(options.client);
    const isRun = args.length > 0 && method === "ProcessService/Run";
    const words = !isRun || WORDS.some((name) => options[name] !== undefined);
    const mode = options.simulate === true ? JobMode.SIMULATE : JobMode.UNSPECIFIED;
    const run = { command: { args: [...args] }, template: options.template ?? "", mode };
    const request =
      options.request ??
      (words ? undefined : toBinary(RunRequestSchema, create(RunRequestSchema, run)));
    const response = await client.unary(
      PolicyService.method.explain,
      {
        tenant: options.tenant ?? "",
        credential: options.credential ?? "",
        method,
        ...(request === undefined ? { call: wordsOf(args, options) } : { request }),
      },
      controlOf(options),
    );
    return decisionOf(response);
  },

  /** The layers and rules that apply to the caller. Rejects with PermissionDeniedError: those of another tenant. */
  async show(options: PolicyShowOptions = {}): Promise<PolicyInfo> {
    knownOptions(options, { ...OPTIONS.control, tenant: true, template: true, client: true });
    const client = chosenClient(options.client);
    const request = { tenant: options.tenant ?? "", template: options.template ?? "" };
    const response = await client.unary(PolicyService.method.show, request, controlOf(options));
    return { layers: response.layers.map(layerOf), digest: response.digest, cut: response.cut };
  },

  /** The named sets of destinations, such as "@pypi". Rejects with a StockadeError. */
  async sets(options: CallControl & { client?: Client } = {}): Promise<DestinationSet[]> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    const response = await client.unary(PolicyService.method.listSets, {}, controlOf(options));
    return response.sets.map(({ name, about, destinations }) => ({ name, about, destinations }));
  },
};
