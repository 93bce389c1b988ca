// SPDX-License-Identifier: Apache-2.0
// About the broker itself.
import type { CallOptions } from "./call.js";
import type { Client } from "./client.js";
import { HealthService, ServingStatus, SystemService } from "./gen/stockade/v1/system_service_pb.js";
import { limitsInForce } from "./limits.js";
import type { LimitsInForce } from "./limits.js";
import { defaultClient } from "./jobs.js";

/** A kind of sandbox that can be asked for. */
export interface TemplateInfo {
  /** Its name. */
  name: string;
  /** Such as "process". */
  tier: string;
  /** What a request gets that names no limits. */
  limits: LimitsInForce;
  /** The most that a request may ask for. */
  limitsMax: LimitsInForce;
  /** Ready sandboxes that are kept. */
  poolSize: number;
  /** Ready sandboxes that are there now. */
  poolReady: number;
}

/** The broker and its host. */
export interface BrokerInfo {
  /** Version of the broker, such as "0.1.0". */
  version: string;
  /** Kernel release, as uname -r has it. */
  kernel: string;
  /** "v2" or "hybrid". */
  cgroups: string;
  /** Kinds of sandboxes that work here. */
  tiers: readonly string[];
  /** What was probed at start. */
  features: readonly { name: string; available: boolean; detail: string }[];
  /** One sentence for each thing that is weaker than it should be. */
  degraded: readonly string[];
  /** What can be asked for. */
  templates: readonly TemplateInfo[];
  /** The caller's sandboxes. */
  sandboxesOwn: number;
  /** All sandboxes. */
  sandboxes: number;
  /** Jobs that run. */
  processes: number;
  /** Seconds since the broker started. */
  uptime: number;
  /** Version of its nng library. */
  nngVersion: string;
  /** Addresses that it listens on. */
  listeners: readonly string[];
}

/** What the broker tells about itself and its host. Rejects with UnavailableError when it cannot be reached. */
export async function info(options: CallOptions & { client?: Client } = {}): Promise<BrokerInfo> {
  const { client = defaultClient(), ...call } = options;
  const m = await client.unary(SystemService.method.info, {}, call);
  return {
    version: m.version,
    kernel: m.kernel,
    cgroups: m.cgroups,
    tiers: m.tiers,
    features: m.features.map(({ name, available, detail }) => ({ name, available, detail })),
    degraded: m.degraded,
    templates: m.templates.map((t) => ({
      name: t.name,
      tier: t.tier,
      limits: limitsInForce(t.limits),
      limitsMax: limitsInForce(t.limitsMax),
      poolSize: t.poolSize,
      poolReady: t.poolReady,
    })),
    sandboxesOwn: m.sandboxesOwn,
    sandboxes: m.sandboxes,
    processes: m.processes,
    uptime: Number(m.uptimeMs) / 1000,
    nngVersion: m.nngVersion,
    listeners: m.listeners,
  };
}

/**
 * True when the broker, or the one service that is named ("stockade.v1.ProcessService"), takes calls. Rejects with
 * NotFoundError when there is no such service, UnavailableError when the broker cannot be reached.
 */
export async function serving(service = "", options: CallOptions & { client?: Client } = {}): Promise<boolean> {
  const { client = defaultClient(), ...call } = options;
  const { status } = await client.unary(HealthService.method.check, { service }, call);
  return status === ServingStatus.SERVING;
}
