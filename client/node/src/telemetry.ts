// What happens in sandboxes, and the records of jobs.
import type { CallOptions } from "./call.js";
import type { Client } from "./client.js";
import { Severity } from "./gen/stockade/v1/record_pb.js";
import { EventKind, TelemetryService } from "./gen/stockade/v1/telemetry_service_pb.js";
import type { Event, Gap, GetRecordResponse } from "./gen/stockade/v1/telemetry_service_pb.js";
import { defaultClient } from "./jobs.js";
import { badArgument } from "./units.js";

/** Which events are wanted; all that is left out is any. */
export interface EventOptions extends CallOptions {
  /** The client; left out, the default one. */
  client?: Client;
  /** Only of these sandboxes, by id. */
  sandboxes?: readonly string[];
  /** Only of this job, by id. */
  process?: string;
  /** Only of these kinds, such as "denied" or "exec". */
  kinds?: readonly string[];
  /** Only what is at least this grave: "info", "notice", "warning", "critical". */
  severity?: string;
  /** Of another caller, such as "uid:1000", or "*" for all: for root. */
  tenant?: string;
  /** Begin with this event, as far as it is kept; left out: with what is new. */
  fromSequence?: bigint | number;
  /** End with the last event that has happened by now. */
  keptOnly?: boolean;
  /** Called where events are missing, with which. */
  onGap?: (gap: Gap) => void;
}

function numberOf<E extends number>(names: Readonly<Record<string, string | E>>, what: string, name: string): E {
  const number = names[name.toUpperCase().replaceAll("-", "_")];
  if (typeof number !== "number" || number === 0) {
    throw badArgument(what, `there is no ${what} "${name}"`);
  }
  return number;
}

/**
 * Events of sandboxes as they happen (telemetry_service.proto). Leaving the loop ends the subscription. It rejects with
 * InvalidArgumentError for a kind or severity that is none, and with UnavailableError when the broker ends.
 */
export async function* events(options: EventOptions = {}): AsyncGenerator<Event, void, undefined> {
  const { client = defaultClient(), onGap, ...wanted } = options;
  const { sandboxes, process, kinds, severity, tenant, fromSequence, keptOnly, ...call } = wanted;
  const stream = client.stream(
    TelemetryService.method.subscribe,
    {
      sandboxIds: [...(sandboxes ?? [])],
      processId: process ?? "",
      kinds: (kinds ?? []).map((name) => numberOf(EventKind, "kind", name)),
      severity: severity === undefined ? Severity.UNSPECIFIED : numberOf(Severity, "severity", severity),
      tenant: tenant ?? "",
      fromSequence: BigInt(fromSequence ?? 0),
      keptOnly: keptOnly ?? false,
    },
    call,
  );
  for await (const message of stream) {
    if (message.gap !== undefined) {
      onGap?.(message.gap);
    }
    yield* message.events;
  }
}

/**
 * What the kernel saw of a job, while it runs and after it. `process`: its id, or the beginning of it; "": the caller's
 * job that ended last. Rejects with NotFoundError when it is no longer kept.
 */
export async function record(
  process = "",
  options: CallOptions & { client?: Client } = {},
): Promise<GetRecordResponse> {
  const { client = defaultClient(), ...call } = options;
  return client.unary(TelemetryService.method.getRecord, { processId: process }, call);
}
