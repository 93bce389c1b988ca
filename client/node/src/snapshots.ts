// SPDX-License-Identifier: Apache-2.0
// Snapshots: states of the files of a sandbox (`Sandbox.snapshot`, `Sandbox.restore`).
import { Buffer } from "node:buffer";
import type { Client } from "./client.js";
import type { CallOptions } from "./call.js";
import { utf8 } from "./fields.js";
import type { File as FileMessage } from "./gen/stockade/v1/file_service_pb.js";
import { SnapshotService } from "./gen/stockade/v1/snapshot_service_pb.js";
import type {
  Change as ChangeMessage,
  Snapshot as SnapshotMessage,
} from "./gen/stockade/v1/snapshot_service_pb.js";
import { badArgument, parseSize, wholeMilliseconds } from "./units.js";
import type { Duration, Size } from "./units.js";

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
  /** By `snapshot`: operations on files, such as transfers and watches, that were cut off. */
  operationsEnded: number;
  /** The id of the kept snapshot; "": it ends with its sandbox. */
  keptId: string;
  /** Of a kept one: the template of its sandbox. */
  template: string;
  /** Jobs ran when it was made, so its own files are a copy of this size; 0: nothing was copied. */
  copiedBytes: number;
  /** Milliseconds for which the sandbox was frozen for the copy. */
  frozenMs: number;
  /** A kept one whose data key was forgotten, so nobody can read it; it can be deleted. */
  unreadable: boolean;
}

/** What may be copied while jobs run. */
export interface CopyOptions {
  /** Jobs may run: they are frozen, what was written since the last snapshot is copied, and they go on. */
  copy?: boolean;
  /** With `copy`: refuse to copy more bytes; default: 256 MiB. */
  copyMax?: Size;
  /** With `copy`: give up after this time; default: 5 seconds. */
  copyTime?: Duration;
}

/** The names of {@link CopyOptions}. */
export const COPY_OPTIONS = { copy: true, copyMax: true, copyTime: true } as const;

/** The fields of a request. */
export function copyOf(options: CopyOptions): { copy: boolean; copyBytesMax: bigint; copyMsMax: number } {
  if (options.copy !== true && (options.copyMax !== undefined || options.copyTime !== undefined)) {
    throw badArgument("copyMax", "copyMax and copyTime need copy");
  }
  return {
    copy: options.copy ?? false,
    copyBytesMax: options.copyMax === undefined ? 0n : BigInt(parseSize(options.copyMax, "copyMax")),
    copyMsMax: options.copyTime === undefined ? 0 : wholeMilliseconds(options.copyTime, "copyTime"),
  };
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
    operationsEnded: message?.operationsEnded ?? 0,
    keptId: message?.keptId ?? "",
    template: message?.template ?? "",
    copiedBytes: Number(message?.copiedBytes ?? 0n),
    frozenMs: Number(message?.frozenUs ?? 0n) / 1000,
    unreadable: message?.unreadable ?? false,
  };
}

/** All snapshots of a sandbox, or ("") the kept ones of the caller, oldest first. */
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

/** One side of a {@link Change}. */
export interface ChangedFile {
  /** `other`: a FIFO, a socket or a device. */
  type: "file" | "folder" | "link" | "other";
  /** Size of a regular file in bytes. */
  size: number;
  /** Permissions, as chmod has them. */
  mode: number;
  /** The target of a symbolic link: bytes. */
  target: Uint8Array;
}

/** A file that differs between two states of a sandbox's files. */
export interface Change {
  /** `changed`: its type, permissions, contents or target. */
  kind: "added" | "changed" | "removed";
  /** Its absolute path, with U+FFFD for what is not UTF-8. */
  path: string;
  /** Its absolute path: bytes. */
  pathBytes: Uint8Array;
  /** As it was; undefined: it was added. */
  before: ChangedFile | undefined;
  /** As it is; undefined: it was removed. */
  after: ChangedFile | undefined;
  /** Changed, and the contents differ. */
  contents: boolean;
  /** The sandbox's user may not read it: size and time were compared, or what the folder holds is missing. */
  unreadable: boolean;
}

const KINDS: readonly (Change["kind"] | undefined)[] = [undefined, "added", "changed", "removed"];
const TYPES: readonly (ChangedFile["type"] | undefined)[] = [undefined, "file", "folder", "link"];

function side(message: FileMessage | undefined): ChangedFile | undefined {
  if (message === undefined) return undefined;
  return {
    type: TYPES[message.type] ?? "other",
    size: Number(message.size),
    mode: message.mode,
    target: message.target,
  };
}

/** @internal What a message says about a change. */
export function changeOf(message: ChangeMessage): Change {
  return {
    kind: KINDS[message.kind] ?? "changed",
    path: Buffer.from(message.path).toString("utf8"),
    pathBytes: message.path,
    before: side(message.before),
    after: side(message.after),
    contents: message.contents,
    unreadable: message.unreadable,
  };
}

/** A path as the broker takes it. */
export function pathBytes(path: string | Uint8Array | undefined): Uint8Array {
  return typeof path === "string" ? utf8(path, "path") : (path ?? new Uint8Array());
}

/** What differs between two states, sorted by path. */
export async function* changesOf(
  client: Client,
  states: { sandboxId: string; first: string; second: string; path: Uint8Array },
  options: CallOptions,
): AsyncGenerator<Change, void, undefined> {
  let pageToken: Uint8Array = new Uint8Array();
  do {
    const request = { ...states, pageSize: 1000, pageToken };
    const page = await client.unary(SnapshotService.method.diff, request, options);
    yield* page.changes.map(changeOf);
    pageToken = page.nextPageToken;
  } while (pageToken.length > 0);
}

/** The difference of one file as text; undefined: it is no text. */
export async function patchOf(
  client: Client,
  states: { sandboxId: string; first: string; second: string; path: Uint8Array },
  options: CallOptions,
): Promise<Buffer | undefined> {
  const parts: Uint8Array[] = [];
  let binary = false;
  for await (const message of client.stream(SnapshotService.method.diffFile, states, options)) {
    parts.push(message.data);
    binary ||= message.binary;
  }
  return binary ? undefined : Buffer.concat(parts);
}
