// SPDX-License-Identifier: Apache-2.0
// What a sandbox and its jobs may use.
import { inspect } from "node:util";
import { create } from "@bufbuild/protobuf";
import { LimitsSchema } from "./gen/stockade/v1/limits_pb.js";
import type { Limits as LimitsMessage } from "./gen/stockade/v1/limits_pb.js";
import { badArgument, count, parseSize, wholeMilliseconds } from "./units.js";
import type { Duration, Size } from "./units.js";

/**
 * Limits of a sandbox and its jobs. A limit that is not set comes from the template. A value above the template's
 * maximum is refused with InvalidArgumentError, which names both values; the broker never lowers a value silently. A
 * job in a sandbox accepts `timeout`, `cpuTime`, `files`, `fileSize` and `output`.
 */
export interface Limits {
  /** Memory of the whole sandbox, including its files, which are kept in memory: bytes or "256M". 4 MiB to 1 TiB. */
  memory?: Size;
  /** Hard quota in CPUs, such as 0.5 or 4. 0.01 to 1,024. */
  cpus?: number;
  /** Share of the CPUs when all of them are busy; 100 is the default. 1 to 10,000. */
  cpuWeight?: number;
  /** CPU time of one job, user and system together: seconds or "500ms". */
  cpuTime?: Duration;
  /** Wall-clock time of one job: seconds or "1.5m". */
  timeout?: Duration;
  /** Processes and threads of the sandbox. */
  pids?: number;
  /** Open files per process. 8 to 1,048,576. */
  files?: number;
  /** Maximum size of a file: bytes or "1G". */
  fileSize?: Size;
  /** Total size of all files that the sandbox writes or changes: bytes or "1G". 64 KiB to 1 TiB. */
  disk?: Size;
  /** Number of files, folders and links that the sandbox creates or changes. 64 to 100,000,000. */
  inodes?: number;
  /**
   * stdout and stderr of one job together; further output is counted and discarded. Bytes or "10M". Default: no limit,
   * unless the template has one.
   */
  output?: Size;
}

/** Limits in force: sizes in bytes, times in seconds; a limit that does not exist is not set. */
export type LimitsInForce = { [name in keyof Limits]?: number };

function cpuMillis(value: number, name: string): number {
  if (typeof value !== "number" || !Number.isFinite(value)) {
    throw badArgument(name, `${String(value)} is not a number of CPUs`);
  }
  return count(Math.round(value * 1000), name);
}

interface Row {
  field: keyof LimitsMessage;
  /** The field is 64 bits wide. */
  wide: boolean;
  /** The factor from the field's unit to ours. */
  unit: number;
  read: (value: never, name: string) => number;
}

const rows: Readonly<Record<keyof Limits, Row>> = {
  memory: { field: "memoryBytes", wide: true, unit: 1, read: parseSize },
  cpus: { field: "cpuMillis", wide: false, unit: 1e-3, read: cpuMillis },
  cpuWeight: { field: "cpuWeight", wide: false, unit: 1, read: count },
  cpuTime: { field: "cpuTimeMs", wide: true, unit: 1e-3, read: wholeMilliseconds },
  timeout: { field: "wallMs", wide: true, unit: 1e-3, read: wholeMilliseconds },
  pids: { field: "pids", wide: false, unit: 1, read: count },
  files: { field: "files", wide: false, unit: 1, read: count },
  fileSize: { field: "fileSizeBytes", wide: true, unit: 1, read: parseSize },
  disk: { field: "diskBytes", wide: true, unit: 1, read: parseSize },
  inodes: { field: "inodes", wide: false, unit: 1, read: count },
  output: { field: "outputBytes", wide: true, unit: 1, read: parseSize },
};

/** The message of the protocol. InvalidArgumentError: a name that is none, or a value that makes no sense. */
export function limitsMessage(limits: Limits): LimitsMessage {
  if (typeof limits !== "object" || (limits as unknown) === null) {
    throw badArgument("limits", `${inspect(limits)} is not an object, such as { memory: "256M" }`);
  }
  const fields: Record<string, number | bigint> = {};
  for (const [name, value] of Object.entries(limits) as [keyof Limits, unknown][]) {
    if (value === undefined) {
      continue;
    }
    if (!Object.hasOwn(rows, name)) {
      throw badArgument(`limits.${name}`, `no such limit; there are ${Object.keys(rows).join(", ")}`);
    }
    const row = rows[name];
    const n = row.read(value as never, `limits.${name}`);
    if (n <= 0) {
      throw badArgument(`limits.${name}`, "must be more than 0; omit it for the template's value");
    }
    fields[row.field] = row.wide ? BigInt(n) : n;
  }
  return create(LimitsSchema, fields);
}

/** What a message says; fields that are 0 are left out. */
export function limitsInForce(message: LimitsMessage | undefined): LimitsInForce {
  const out: LimitsInForce = {};
  for (const [name, row] of Object.entries(rows) as [keyof Limits, Row][]) {
    const value = Number(message?.[row.field] ?? 0);
    if (value > 0) {
      out[name] = value * row.unit;
    }
  }
  return out;
}
