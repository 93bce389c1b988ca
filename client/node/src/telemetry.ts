// SPDX-License-Identifier: Apache-2.0
// What happens in sandboxes, and the records of jobs.
import { setTimeout as sleep } from "node:timers/promises";
import type { CallOptions } from "./call.js";
import type { Client } from "./client.js";
import { UnavailableError } from "./errors.js";
import { Severity } from "./gen/stockade/v1/record_pb.js";
import { EventKind, TelemetryService } from "./gen/stockade/v1/telemetry_service_pb.js";
import type {
  Event,
  Gap,
  GetRecordResponse,
  SubscribeResponse,
  Usage,
} from "./gen/stockade/v1/telemetry_service_pb.js";
import { chosenClient } from "./jobs.js";
import { badArgument } from "./units.js";

/** Selects events; an option that is not set selects all. */
export interface EventOptions extends CallOptions {
  /** The client. Default: `defaultClient()`. */
  client?: Client;
  /** Only events of these sandboxes, by id. */
  sandboxes?: readonly string[];
  /** Only events of this job, by id. */
  process?: string;
  /** Only events of these kinds, such as "denied" or "exec". */
  kinds?: readonly string[];
  /** Only events of this severity or higher: "info", "notice", "warning", "critical". */
  severity?: string;
  /** Another caller, such as "uid:1000", or "*" for all callers; requires root. */
  tenant?: string;
  /** Start with this event, if it is still kept. Default: only new events. */
  fromSequence?: bigint | number;
  /** The run of the broker that the number belongs to (Event.instance). Default: the current one. */
  instance?: string;
  /** End after the last event that has happened so far. */
  keptOnly?: boolean;
  /** Continue when the connection breaks or the broker is restarted. Default: true, except with keptOnly. */
  reconnect?: boolean;
  /** Called for missing events. The reason is "restarted" if the broker was restarted. */
  onGap?: (gap: Gap) => void;
}

/** Selects sandboxes. */
export interface UsageOptions extends CallOptions {
  /** The client. Default: `defaultClient()`. */
  client?: Client;
  /** Only this sandbox, by id or name; the result is empty if it does not exist. */
  sandbox?: string;
  /** Another caller, such as "uid:1000", or "*" for all callers; requires root. */
  tenant?: string;
}

function numberOf<E extends number>(names: Readonly<Record<string, string | E>>, what: string, name: string): E {
  const number = names[name.toUpperCase().replaceAll("-", "_")];
  if (typeof number !== "number" || number === 0) {
    throw badArgument(what, `there is no ${what} "${name}"`);
  }
  return number;
}

/** The position at which a subscription continues after a break. */
interface Cursor {
  fromSequence: bigint;
  instance: string;
  begun: boolean;
  failures: number;
}

function moveOn(at: Cursor, message: SubscribeResponse): void {
  if (at.instance !== "" && message.instance !== at.instance) {
    at.fromSequence = 1n;
  } else if (at.fromSequence === 0n) {
    at.fromSequence = message.lastSequence + 1n;
  }
  if (message.gap !== undefined && message.gap.toSequence >= at.fromSequence) {
    at.fromSequence = message.gap.toSequence + 1n;
  }
  const last = message.events.at(-1);
  if (last !== undefined) {
    at.fromSequence = last.sequence + 1n;
  }
  at.instance = message.instance;
  at.begun = true;
  at.failures = 0;
}

/** Longer with each failure, up to a second; ends early with the signal. */
async function pause(at: Cursor, signal: AbortSignal | undefined): Promise<void> {
  const ms = Math.min(50 * 2 ** Math.min(at.failures, 5), 1000);
  at.failures += 1;
  await sleep(ms, undefined, signal === undefined ? {} : { signal }).catch(() => undefined);
}

/**
 * Events of sandboxes as they happen (telemetry_service.proto). Leaving the loop ends the subscription. It continues
 * when the connection breaks or the broker is restarted, without a timeout, unless `reconnect` is false: then it
 * rejects with UnavailableError. It rejects with InvalidArgumentError for an unknown kind or severity.
 */
export async function* events(options: EventOptions = {}): AsyncGenerator<Event, void, undefined> {
  const { client: given, onGap, reconnect = true, ...wanted } = options;
  const client = chosenClient(given);
  const { sandboxes, process, kinds, severity, tenant, fromSequence, instance, keptOnly, ...call } = wanted;
  const at: Cursor = { fromSequence: BigInt(fromSequence ?? 0), instance: instance ?? "", begun: false, failures: 0 };
  const request = {
    sandboxIds: [...(sandboxes ?? [])],
    processId: process ?? "",
    kinds: (kinds ?? []).map((name) => numberOf(EventKind, "kind", name)),
    severity: severity === undefined ? Severity.UNSPECIFIED : numberOf(Severity, "severity", severity),
    tenant: tenant ?? "",
    keptOnly: keptOnly ?? false,
  };
  for (;;) {
    try {
      const { fromSequence: next, instance: of } = at;
      const asked = { ...request, fromSequence: next, instance: of };
      for await (const message of client.stream(TelemetryService.method.subscribe, asked, call)) {
        moveOn(at, message);
        if (message.gap !== undefined) {
          onGap?.(message.gap);
        }
        yield* message.events;
      }
      return;
    } catch (error) {
      const over = !reconnect || request.keptOnly || !at.begun || client.closed;
      if (over || !(error instanceof UnavailableError)) {
        throw error;
      }
    }
    await pause(at, call.signal);
  }
}

/**
 * The current resource use of sandboxes: CPU, memory, network, pressure. Most fields (`Usage` in
 * telemetry_service.proto) are totals; compute a rate from the difference of two. Rejects with UnavailableError if the
 * broker cannot be reached.
 */
export async function* usage(options: UsageOptions = {}): AsyncGenerator<Usage, void, undefined> {
  const { client: given, sandbox = "", tenant = "", ...call } = options;
  const client = chosenClient(given);
  let pageToken = "";
  do {
    const request = { sandboxId: sandbox, tenant, pageSize: 1000, pageToken };
    const page = await client.unary(TelemetryService.method.listUsage, request, call);
    yield* page.usage;
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

/**
 * The kernel's record of a job, while it runs and after it ended. `process`: its id, or the first digits of it; "": the
 * caller's job that ended last. Rejects with NotFoundError if the record is no longer kept.
 */
export async function record(
  process = "",
  options: CallOptions & { client?: Client } = {},
): Promise<GetRecordResponse> {
  const { client: given, ...call } = options;
  const client = chosenClient(given);
  return client.unary(TelemetryService.method.getRecord, { processId: process }, call);
}
