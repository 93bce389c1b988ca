// SPDX-License-Identifier: Apache-2.0
// What the broker says of a sandbox and of its processes.
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Process as ProcessMessage } from "./gen/stockade/v1/process_service_pb.js";
import { SandboxState } from "./gen/stockade/v1/sandbox_service_pb.js";
import type { Sandbox as SandboxMessage, Sleep as SleepMessage } from "./gen/stockade/v1/sandbox_service_pb.js";
import { limitsInForce } from "./limits.js";
import type { LimitsInForce } from "./limits.js";
import { networkMode, networkPolicy } from "./network.js";
import type { Network, NetworkPolicy } from "./network.js";
import { RunResult } from "./result.js";

/** When a sandbox fell asleep, and what it lost with its processes. */
export interface SleepInfo {
  /** When it fell asleep; its files were those of this time. */
  asleep: Date;
  /** When it woke up; undefined: it is asleep. */
  awake: Date | undefined;
  /** Nobody used it for `sleepAfter`; otherwise `sleep` was called. */
  idle: boolean;
  /** It was lost while it was awake, with its broker or host: what it wrote since is lost. */
  fellBack: boolean;
  /** Bytes of its files on the broker's disk. */
  size: number;
  /** Jobs that ended. */
  processesEnded: number;
  /** Contexts that ended, with their variables. */
  contextsEnded: number;
  /** Operations on files, such as transfers and watches, that ended. */
  operationsEnded: number;
  /** Connections to its ports that were closed. */
  connectionsClosed: number;
}

/** A sandbox, as the broker describes it. */
export interface SandboxInfo {
  /** An opaque text of at most 48 characters. */
  id: string;
  /** The template that it was created from. */
  template: string;
  /** Its name, or "". */
  name: string;
  /** Its state. */
  state: "running" | "paused" | "asleep" | "deleting" | "unknown";
  /** Limits in force: bytes and seconds. */
  limits: LimitsInForce;
  /** Mode of the network policy in force. */
  network: Network | "unknown";
  /** The network policy in force. */
  policy: NetworkPolicy;
  /** Labels that the caller chose. */
  metadata: Readonly<Record<string, string>>;
  /** Time of its creation. */
  created: Date;
  /** Time at which the broker deletes it. */
  expires: Date;
  /** Number of jobs that run in it. */
  processes: number;
  /** What is mounted in it: from paths to names of volumes (with ":ro": read-only). */
  volumes: Readonly<Record<string, string>>;
  /** It falls asleep when nobody used it for so many seconds; 0: not by itself. */
  sleepAfter: number;
  /** The last time that it fell asleep; undefined: it never did. */
  lastSleep: SleepInfo | undefined;
}

/** A process, as the broker describes it: a running one, or one that ended recently. */
export interface ProcessInfo {
  /** An opaque text of at most 48 characters; `Sandbox.attach` takes it. */
  id: string;
  /** The sandbox that it runs in. */
  sandboxId: string;
  /** Its pid inside the sandbox. */
  pid: number;
  /** Its first 16 arguments, each truncated to 256 bytes. */
  args: readonly string[];
  /** When it started. */
  started: Date;
  /** Its result, if it has ended. */
  result: RunResult | undefined;
  /** Bytes of output so far. */
  output: number;
  /** True if it has a terminal. */
  terminal: boolean;
}

function dateOf(stamp: Timestamp | undefined): Date {
  return new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6));
}

const states: Readonly<Record<number, SandboxInfo["state"]>> = {
  [SandboxState.RUNNING]: "running",
  [SandboxState.PAUSED]: "paused",
  [SandboxState.DELETING]: "deleting",
  [SandboxState.ASLEEP]: "asleep",
};

function sleepInfo(message: SleepMessage): SleepInfo {
  return {
    asleep: dateOf(message.sleepTime),
    awake: message.wakeTime === undefined ? undefined : dateOf(message.wakeTime),
    idle: message.idle,
    fellBack: message.fellBack,
    size: Number(message.bytes),
    processesEnded: message.processesEnded,
    contextsEnded: message.contextsEnded,
    operationsEnded: message.operationsEnded,
    connectionsClosed: message.connectionsClosed,
  };
}

export function sandboxInfo(message: SandboxMessage | undefined): SandboxInfo {
  return {
    id: message?.id ?? "",
    template: message?.template ?? "",
    name: message?.name ?? "",
    state: states[message?.state ?? 0] ?? "unknown",
    limits: limitsInForce(message?.limits),
    network: networkMode(message?.network),
    policy: networkPolicy(message?.network),
    metadata: message?.metadata ?? {},
    created: dateOf(message?.createTime),
    expires: dateOf(message?.expireTime),
    processes: message?.processes ?? 0,
    volumes: Object.fromEntries((message?.volumes ?? []).map((m) => [m.path, m.volume + (m.readOnly ? ":ro" : "")])),
    sleepAfter: Number(message?.sleepAfterMs ?? 0n) / 1000,
    lastSleep: message?.lastSleep === undefined ? undefined : sleepInfo(message.lastSleep),
  };
}

export function processInfo(message: ProcessMessage): ProcessInfo {
  return {
    id: message.id,
    sandboxId: message.sandboxId,
    pid: message.pid,
    args: message.args,
    started: dateOf(message.startTime),
    result: message.result === undefined ? undefined : new RunResult(message.result),
    output: Number(message.outputBytes),
    terminal: message.terminal,
  };
}
