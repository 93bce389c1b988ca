// SPDX-License-Identifier: Apache-2.0
// About the broker itself.
import type { CallOptions } from "./call.js";
import type { Client } from "./client.js";
import { HealthService, ServingStatus, SystemService } from "./gen/stockade/v1/system_service_pb.js";
import { limitsInForce } from "./limits.js";
import type { LimitsInForce } from "./limits.js";
import { chosenClient } from "./jobs.js";

/** A kind of sandbox. */
export interface TemplateInfo {
  /** Its name. */
  name: string;
  /** Such as "process". */
  tier: string;
  /** Limits of a request that sets none. */
  limits: LimitsInForce;
  /** Highest limits that a request may set. */
  limitsMax: LimitsInForce;
  /** Number of ready sandboxes that the broker keeps. */
  poolSize: number;
  /** Number of sandboxes that are ready now. */
  poolReady: number;
  /** The reason why it cannot be used, such as a missing folder; "": it can. */
  disabled: string;
}

/** A quota of the caller's tenant. */
export interface QuotaUse {
  /** Its name, which ends with its unit, such as "sandboxes", "cpu_millis", "memory_bytes", "jobs_per_minute". */
  name: string;
  /** What is used now. */
  used: number;
  /** The maximum; undefined: there is none. */
  limit?: number;
}

/** The broker and its host. */
export interface BrokerInfo {
  /** Version of the broker, such as "0.1.0". */
  version: string;
  /** Kernel release (uname -r). */
  kernel: string;
  /** "v2" or "hybrid". */
  cgroups: string;
  /** Kinds of sandboxes that this host supports. */
  tiers: readonly string[];
  /** Features that the broker looked for at its start. */
  features: readonly { name: string; available: boolean; detail: string }[];
  /** One sentence for each protection that is weaker than it should be. */
  degraded: readonly string[];
  /** The templates. */
  templates: readonly TemplateInfo[];
  /** The caller's sandboxes. */
  sandboxesOwn: number;
  /** All sandboxes. */
  sandboxes: number;
  /** Number of running jobs. */
  processes: number;
  /** Seconds since the broker started. */
  uptime: number;
  /** Version of its nng library. */
  nngVersion: string;
  /** Addresses that it listens on. */
  listeners: readonly string[];
  /** The caller's tenant. */
  tenant: string;
  /** Its weight in the queue for sandboxes. */
  weight: number;
  /** Its quotas, and what it uses of them. */
  quotas: readonly QuotaUse[];
}

/** Information about the broker and its host. Rejects with UnavailableError if the broker cannot be reached. */
export async function info(options: CallOptions & { client?: Client; tenant?: string } = {}): Promise<BrokerInfo> {
  const { client: given, tenant = "", ...call } = options;
  const client = chosenClient(given);
  const m = await client.unary(SystemService.method.info, { tenant }, call);
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
      disabled: t.disabled,
    })),
    sandboxesOwn: m.sandboxesOwn,
    sandboxes: m.sandboxes,
    processes: m.processes,
    uptime: Number(m.uptimeMs) / 1000,
    nngVersion: m.nngVersion,
    listeners: m.listeners,
    tenant: m.tenant,
    weight: m.weight,
    quotas: m.quotas.map(({ name, used, limit, unlimited }) => ({
      name,
      used: Number(used),
      ...(unlimited ? {} : { limit: Number(limit) }),
    })),
  };
}

/**
 * True if the broker, or the named service ("stockade.v1.ProcessService"), accepts calls. Rejects with NotFoundError if
 * the service does not exist, UnavailableError if the broker cannot be reached.
 */
export async function serving(service = "", options: CallOptions & { client?: Client } = {}): Promise<boolean> {
  const { client: given, ...call } = options;
  const client = chosenClient(given);
  const { status } = await client.unary(HealthService.method.check, { service }, call);
  return status === ServingStatus.SERVING;
}
