// SPDX-License-Identifier: Apache-2.0
// Snapshots: states of the files of a sandbox (`Sandbox.snapshot`, `Sandbox.restore`).
import type { Client } from "./client.js";
import type { CallOptions } from "./call.js";
import { SnapshotService } from "./gen/stockade/v1/snapshot_service_pb.js";
import type { Snapshot as SnapshotMessage } from "./gen/stockade/v1/snapshot_service_pb.js";

/** A state of the files of a sandbox. */
export interface SnapshotInfo {
  /** Unique among the snapshots of its sandbox. */
  name: string;
  /** The sandbox. */
  sandboxId: string;
  /** Time of its creation. */
  created: Date;
  /** Bytes that were written since the snapshot below it. */
  size: number;
  /** All bytes that it holds, also what other snapshots share with it. */
  totalSize: number;
  /** True if the files of now go on from it. */
  current: boolean;
  /** What a snapshot does not hold, in words. */
  notIncluded: readonly string[];
}

/** What a message says about a snapshot. */
export function snapshotInfo(message: SnapshotMessage | undefined): SnapshotInfo {
  const stamp = message?.createTime;
  return {
    name: message?.name ?? "",
    sandboxId: message?.sandboxId ?? "",
    created: new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6)),
    size: Number(message?.bytes ?? 0n),
    totalSize: Number(message?.totalBytes ?? 0n),
    current: message?.current ?? false,
    notIncluded: message?.notIncluded ?? [],
  };
}

/** All snapshots of a sandbox, oldest first. */
export async function* snapshotsOf(
  client: Client,
  sandbox: string,
  options: CallOptions,
): AsyncGenerator<SnapshotInfo, void, undefined> {
  let pageToken = "";
  do {
    const request = { sandbox, pageSize: 1000, pageToken };
    const page = await client.unary(SnapshotService.method.list, request, options);
    yield* page.snapshots.map(snapshotInfo);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}
