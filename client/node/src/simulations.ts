// SPDX-License-Identifier: Apache-2.0
// Simulations: what a job or a cell would change and send, without any of it (the option `simulate`).
import { utf8, wrongType } from "./fields.js";
import { changeOf } from "./snapshots.js";
import type { Change } from "./snapshots.js";
import { JobMode } from "./gen/stockade/v1/simulation_pb.js";
import type { SimulationOutcome } from "./gen/stockade/v1/simulation_pb.js";
import { badArgument } from "./units.js";

/** Whether to simulate a job; or what destinations say meanwhile: `{ "example.com:80": "HTTP/1.0 200 OK\r\n\r\n" }`. */
export type Simulate = boolean | Readonly<Record<string, string | Uint8Array>>;

/** What a simulated job would have sent to one destination. */
export interface SimulatedConnection {
  /** Such as "example.com:443"; of a query the name. */
  destination: string;
  /** "tcp", "udp", or "dns": a query for a name. */
  protocol: string;
  /** The rule of the network policy that allows it, from 1; 0: its mode does. */
  rule: number;
  /** The first bytes, at most 256. */
  data: Uint8Array;
  /** Number of bytes that it sent. */
  outBytes: number;
  /** Number of bytes of the answer that it got. */
  inBytes: number;
}

/** What would be refused. */
export interface SimulatedRefusal {
  /** "call": the whole call, by a policy of the host; otherwise "connect", "dns", ... */
  operation: string;
  /** The destination, or the method. */
  destination: string;
  /** "tcp", "udp", ...; "": none. */
  protocol: string;
  /** Why. */
  reason: string;
  /** The rule; "": no rule allows it. */
  rule: string;
  /** People would be asked. */
  wouldAsk: boolean;
  /** Number of equal refusals. */
  count: number;
}

/** What a simulated job did. Lists hold the first ones; the totals count all. */
export interface Simulation {
  /** The job ran. False: `refused` says why it would not. */
  executed: boolean;
  /** The files that it changed, at most 100, sorted by path. */
  changes: readonly Change[];
  /** There are more changes than these. */
  more: boolean;
  /** Why the changes are not known; "": they are. */
  unknown: string;
  /** What it would have sent, at most 64. */
  sent: readonly SimulatedConnection[];
  /** Number of connections and queries. */
  sentTotal: number;
  /** There may be more connections than `sentTotal`. */
  sentLost: boolean;
  /** What was refused, or would be. */
  refused: readonly SimulatedRefusal[];
  /** Number of refusals. */
  refusedTotal: number;
  /** What the simulation could not show. */
  notIncluded: readonly string[];
}

function replyOf(destination: string, reply: unknown): Uint8Array {
  const name = `simulate[${JSON.stringify(destination)}]`;
  if (typeof reply === "string") return utf8(reply, name);
  if (reply instanceof Uint8Array) return reply;
  throw wrongType(reply, name, "a string or a Uint8Array");
}

/** @internal The fields of a request. */
export function simulateOf(simulate: Simulate | undefined): {
  mode: JobMode;
  answers: { destination: string; reply: Uint8Array }[];
} {
  if (simulate === undefined || simulate === false) return { mode: JobMode.UNSPECIFIED, answers: [] };
  if (simulate !== true && typeof simulate !== "object") {
    throw badArgument("simulate", "is true, false, or an object of answers");
  }
  const answers = Object.entries(simulate === true ? {} : simulate);
  return {
    mode: JobMode.SIMULATE,
    answers: answers.map(([destination, reply]) => ({ destination, reply: replyOf(destination, reply) })),
  };
}

/** @internal What the last message of a job says about its simulation. */
export function simulationOf(message: SimulationOutcome | undefined): Simulation | undefined {
  if (message === undefined) return undefined;
  return {
    executed: message.executed,
    changes: message.changes.map(changeOf),
    more: message.more,
    unknown: message.unknown,
    sent: message.sent.map(({ destination, protocol, rule, data, outBytes, inBytes }) => ({
      destination,
      protocol,
      rule,
      data,
      outBytes: Number(outBytes),
      inBytes: Number(inBytes),
    })),
    sentTotal: Number(message.sentTotal),
    sentLost: message.sentLost,
    refused: message.refused.map(({ operation, destination, protocol, reason, rule, wouldAsk, count }) => ({
      operation,
      destination,
      protocol,
      reason,
      rule,
      wouldAsk,
      count: Number(count),
    })),
    refusedTotal: Number(message.refusedTotal),
    notIncluded: message.notIncluded,
  };
}
