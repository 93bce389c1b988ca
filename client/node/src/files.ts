// SPDX-License-Identifier: Apache-2.0
// Files of a sandbox (`Sandbox.files`).
import { inspect } from "node:util";
import type { DescMessage, DescMethodServerStreaming, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Client } from "./client.js";
import { Code, DataLossError, FailedPreconditionError, NotFoundError, ProtocolError } from "./errors.js";
import { flag, textOf, utf8, wrongType } from "./fields.js";
import { FileWatch } from "./file_watch.js";
import { pack, Unpacker } from "./folders.js";
import { ArchiveFormat, FileService, FileType } from "./gen/stockade/v1/file_service_pb.js";
import type { ArchiveCounts, File as FileMessage } from "./gen/stockade/v1/file_service_pb.js";
import { controlOf, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { badArgument, count, knownOptions, parseSize, positive } from "./units.js";
import type { Size } from "./units.js";

const PIECE_BYTES = 256 * 1024; // of one call of Send
const WINDOW = 3; // calls of Send without an answer: the broker queues 1 MiB of a transfer
const WHOLE_BYTES = 1024 * 1024; // of one call of Write
const READ_BYTES_MAX = 64 * 1024 * 1024;

/** A path in a sandbox. A name that is not UTF-8 is bytes. */
export type FilePath = string | Uint8Array;

/** What a file may be written from: text (as UTF-8), bytes, or pieces of bytes, such as a readable stream. */
export type Contents = string | Uint8Array | Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

/** A file of a sandbox. */
export interface FileInfo {
  /** Its path: as it was given, or below the folder that was listed. */
  path: string;
  /** The same as bytes, for names that are not UTF-8. */
  pathBytes: Uint8Array;
  /** "other": a FIFO, a socket, a device. */
  type: "file" | "folder" | "link" | "other";
  /** Size of a regular file in bytes. */
  size: number;
  /** Permissions, as chmod has them. */
  mode: number;
  /** When its contents last changed. */
  modified: Date;
  /** The target of a symbolic link, or "". */
  target: string;
  /** Changes whenever the file changes; `write` takes it as `ifVersion`. */
  version: string;
}

/** Options of `Files.write`. */
export interface WriteOptions extends CallControl {
  /** Permissions. Default: those of the file that it replaces, or 0o644. */
  mode?: number;
  /** Make the folders that are missing. */
  parents?: boolean;
  /** Reject with AlreadyExistsError if something is there. */
  onlyIfAbsent?: boolean;
  /** Reject with AbortedError unless the file has this version. */
  ifVersion?: string;
}

/** A part of a file. */
export interface RangeOptions extends CallControl {
  /** First byte. Default: 0. */
  offset?: number;
  /** Number of bytes. Default: all. */
  length?: number;
}

/** Bounds of a folder that is packed or unpacked. */
export interface FolderOptions extends CallControl {
  /** Maximum size of all files. Default: none but the sandbox's disk. */
  bytesMax?: Size;
  /** Maximum number of files and folders. Default: 1,000,000. */
  entriesMax?: number;
}

/** The form and the bounds of an archive. */
export interface ArchiveOptions extends FolderOptions {
  /** It is, or becomes, a .tar.zst. Default: no. */
  compressed?: boolean;
  /** `uploadArchive`: how many times as large a compressed archive may become, beyond its first MiB. Default: 1,000. */
  ratioMax?: number;
}

const WRITE = { ...OPTIONS.control, mode: true, parents: true, onlyIfAbsent: true, ifVersion: true } as const;
const RANGE = { ...OPTIONS.control, offset: true, length: true } as const;
const FOLDER = { ...OPTIONS.control, bytesMax: true, entriesMax: true } as const;
const ARCHIVE = { ...FOLDER, compressed: true, ratioMax: true } as const;

const types: Readonly<Record<number, FileInfo["type"]>> = {
  [FileType.FILE]: "file",
  [FileType.FOLDER]: "folder",
  [FileType.LINK]: "link",
};

function pathOf(path: FilePath, name = "path"): Uint8Array {
  const given: unknown = path;
  if (typeof given !== "string" && !(given instanceof Uint8Array)) {
    throw wrongType(given, name, "a string or a Uint8Array");
  }
  if (given.length === 0) {
    throw badArgument(name, "must not be empty");
  }
  return typeof given === "string" ? utf8(given, name) : given;
}

function offsetOf(value: number | undefined, name: string): bigint {
  if (value !== undefined && (!Number.isSafeInteger(value) || value < 0)) {
    throw badArgument(name, `${inspect(value)} is not a whole number from 0 on`);
  }
  return BigInt(value ?? 0);
}

function lengthOf(value: number | undefined): bigint {
  return value === 0 ? BigInt(positive(value, "length")) : offsetOf(value, "length");
}

function fileInfo(message: FileMessage | undefined): FileInfo {
  const path = message?.path ?? new Uint8Array(0);
  const at = message?.modifyTime;
  return {
    path: new TextDecoder().decode(path),
    pathBytes: path,
    type: types[message?.type ?? 0] ?? "other",
    size: Number(message?.size ?? 0n),
    mode: message?.mode ?? 0,
    modified: new Date(Number(at?.seconds ?? 0n) * 1000 + Math.floor((at?.nanos ?? 0) / 1e6)),
    target: new TextDecoder().decode(message?.target),
    version: message?.version ?? "",
  };
}

function sourceOf(contents: Contents, name = "contents"): Iterable<Uint8Array> | AsyncIterable<Uint8Array> {
  if (typeof contents === "string") {
    return [utf8(contents, "contents")];
  }
  if (contents instanceof Uint8Array) {
    return [contents];
  }
  const given = contents as Partial<Iterable<Uint8Array> & AsyncIterable<Uint8Array>> | undefined | null;
  if (given?.[Symbol.asyncIterator] === undefined && given?.[Symbol.iterator] === undefined) {
    throw wrongType(contents, name, "text, bytes or pieces of bytes");
  }
  return contents;
}

/** @internal An archive is bytes: text is the path of one, by mistake. */
export function checkArchive(archive: Contents): void {
  if (typeof archive === "string") {
    throw badArgument("archive", "is text; pass bytes, or fs.createReadStream(path) for a file");
  }
  sourceOf(archive, "archive");
}

type Piece = IteratorResult<Uint8Array, void>;

/** What is written, in pieces that a call may carry; small ones are joined. */
async function* pieces(contents: Contents): AsyncGenerator<Uint8Array, void, undefined> {
  let kept: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of sourceOf(contents)) {
    if (!((part as unknown) instanceof Uint8Array)) {
      throw badArgument("contents", `${inspect(part)} is not bytes`);
    }
    for (let at = 0; at < part.length; ) {
      const piece = part.subarray(at, at + PIECE_BYTES - bytes);
      kept.push(piece);
      bytes += piece.length;
      at += piece.length;
      if (bytes === PIECE_BYTES) {
        yield Buffer.concat(kept);
        kept = [];
        bytes = 0;
      }
    }
  }
  if (bytes > 0) {
    yield Buffer.concat(kept);
  }
}

function formOf(options: ArchiveOptions): ArchiveFormat {
  return flag(options.compressed, "compressed") ? ArchiveFormat.TAR_ZST : ArchiveFormat.TAR;
}

function boundsOf(options: ArchiveOptions): { bytesMax: bigint; entriesMax: bigint } {
  knownOptions(options, ARCHIVE);
  return {
    bytesMax: BigInt(options.bytesMax === undefined ? 0 : parseSize(options.bytesMax, "bytesMax")),
    entriesMax: BigInt(options.entriesMax === undefined ? 0 : count(options.entriesMax, "entriesMax")),
  };
}

// A transfer has one deadline, that of its stream; `signal` ends the calls beside it, too.
function besideOf(options: CallControl): CallControl {
  return options.signal === undefined ? {} : { signal: options.signal };
}

/**
 * The files of a sandbox, as its jobs see them. A relative path begins at the template's working directory. A symbolic
 * link never leads out of the sandbox.
 *
 * @example
 * await sbx.files.write("data/in.txt", "2\n1\n", { parents: true });
 * for await (const file of sbx.files.list(".", { depth: 2 })) console.log(file.path, file.size);
 */
export class Files {
  readonly #client: Client;
  readonly #sandboxId: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#sandboxId = sandboxId;
  }

  /** Describes a file; with `follow` what a symbolic link leads to. Rejects with NotFoundError. */
  async stat(path: FilePath, options: { follow?: boolean } & CallControl = {}): Promise<FileInfo> {
    knownOptions(options, { ...OPTIONS.control, follow: true });
    const request = { ...this.#at(path), follow: options.follow ?? false };
    return fileInfo((await this.#client.unary(FileService.method.stat, request, controlOf(options))).file);
  }

  /** Whether there is a file. Rejects with NotFoundError if the sandbox does not exist any more. */
  async exists(path: FilePath, options: CallControl = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (e) {
      if (e instanceof NotFoundError && e.reason === "FILE_NOT_FOUND") {
        return false;
      }
      throw e;
    }
  }

  /**
   * The files in a folder, sorted by path. `depth`: levels below the folder, up to 64; default 1. `glob`: only names
   * that match; with "/" the path below the folder is compared. Rejects with NotFoundError and FailedPreconditionError
   * (it is no folder).
   */
  async *list(
    path: FilePath = ".",
    options: { depth?: number; glob?: FilePath } & CallControl = {},
  ): AsyncGenerator<FileInfo, void, undefined> {
    knownOptions(options, { ...OPTIONS.control, depth: true, glob: true });
    const request = {
      ...this.#at(path),
      depth: count(options.depth ?? 0, "depth"),
      glob: options.glob === undefined ? new Uint8Array(0) : pathOf(options.glob, "glob"),
      pageSize: 1000,
    };
    let pageToken: Uint8Array = new Uint8Array(0);
    do {
      const page = await this.#client.unary(FileService.method.list, { ...request, pageToken }, controlOf(options));
      yield* page.files.map(fileInfo);
      pageToken = page.nextPageToken;
    } while (pageToken.length > 0);
  }

  /**
   * The contents of a regular file, or a part of it, in pieces. An iteration that ends without an error is complete.
   * Rejects with NotFoundError and FailedPreconditionError (it is no regular file).
   */
  async *chunks(path: FilePath, options: RangeOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    knownOptions(options, RANGE);
    const request = {
      ...this.#at(path),
      offset: offsetOf(options.offset, "offset"),
      length: lengthOf(options.length),
    };
    for await (const part of this.#client.stream(FileService.method.read, request, controlOf(options))) {
      if (part.data.length > 0) {
        yield part.data;
      }
    }
  }

  /**
   * The contents of a regular file, or a part of it. Rejects like `chunks`, and with DataLossError if there are more
   * than `maxBytes` (default "64M").
   */
  async read(path: FilePath, options: RangeOptions & { maxBytes?: Size } = {}): Promise<Uint8Array> {
    knownOptions(options, { ...RANGE, maxBytes: true });
    const { maxBytes, ...range } = options;
    const most = maxBytes === undefined ? READ_BYTES_MAX : parseSize(maxBytes, "maxBytes");
    const parts: Uint8Array[] = [];
    let bytes = 0;
    for await (const part of this.chunks(path, range)) {
      parts.push(part);
      bytes += part.length;
      if (bytes > most) {
        const text = `${inspect(path)} has more than maxBytes (${most}); read it with chunks()`;
        throw new DataLossError(Code.DATA_LOSS, text);
      }
    }
    return Buffer.concat(parts);
  }

  /** The contents of a regular file as text (UTF-8). Rejects like `read`. */
  async readText(path: FilePath, options: { maxBytes?: Size } & CallControl = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /**
   * Writes a file as a whole: a reader sees the old contents or the new ones. Rejects with AlreadyExistsError,
   * AbortedError (another version), PermissionDeniedError, ResourceExhaustedError (the disk is full).
   */
  async write(path: FilePath, contents: Contents, options: WriteOptions = {}): Promise<FileInfo> {
    knownOptions(options, WRITE);
    const request = {
      ...this.#at(path),
      options: {
        mode: count(options.mode ?? 0, "mode"),
        parents: flag(options.parents, "parents"),
        onlyIfAbsent: flag(options.onlyIfAbsent, "onlyIfAbsent"),
        onlyIfVersion: textOf(options.ifVersion ?? "", "ifVersion"),
      },
    };
    const whole = typeof contents === "string" ? utf8(contents, "contents") : contents;
    if (whole instanceof Uint8Array && whole.length <= WHOLE_BYTES) {
      const call = { ...request, data: whole };
      return fileInfo((await this.#client.unary(FileService.method.write, call, controlOf(options))).file);
    }
    const last = await sendTransfer(this.#client, FileService.method.openWrite, request, whole, options);
    return fileInfo(last.file);
  }

  /**
   * Unpacks a tar archive into a folder, and resolves with the number of files and folders. Rejects with
   * InvalidArgumentError (it is damaged, or leads out of the folder), DataLossError (it ends early) and
   * ResourceExhaustedError; what came before stays.
   */
  async uploadArchive(path: FilePath, archive: Contents, options: ArchiveOptions = {}): Promise<number> {
    checkArchive(archive);
    const request = {
      ...this.#at(path),
      ...boundsOf(options),
      format: formOf(options),
      ratioMax: BigInt(options.ratioMax === undefined ? 0 : count(options.ratioMax, "ratioMax")),
    };
    const last = await sendTransfer(this.#client, FileService.method.upload, request, archive, options);
    return Number(last.counts?.entries ?? 0n);
  }

  /**
   * A tar archive of a file, or of what a folder holds, in pieces. A job may have made any file and link in it:
   * `downloadFolder` unpacks it safely. Rejects with NotFoundError and ResourceExhaustedError.
   */
  async *downloadArchive(path: FilePath, options: ArchiveOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const request = { ...this.#at(path), ...boundsOf(options), format: formOf(options) };
    let counts: ArchiveCounts | undefined;
    for await (const part of this.#client.stream(FileService.method.download, request, controlOf(options))) {
      counts ??= part.counts;
      if (part.data.length > 0) {
        yield part.data;
      }
    }
    if (counts === undefined) {
      throw new ProtocolError("the broker ended an archive without a result");
    }
  }

  /**
   * Uploads what a folder of this machine holds, and resolves with the number of files and folders. The folder in the
   * sandbox is made if it is missing. Symbolic links go as such; FIFOs, sockets and devices are left out. Rejects with
   * ResourceExhaustedError, and with the system's error if the folder cannot be read.
   */
  async uploadFolder(folder: string, path: FilePath, options: FolderOptions = {}): Promise<number> {
    knownOptions(options, FOLDER);
    return this.uploadArchive(path, pack(textOf(folder, "folder")), options);
  }

  /**
   * Downloads what a folder of the sandbox holds, and resolves with the number of files and folders. The folder of this
   * machine is made if it is missing; existing files are replaced. Nothing is written outside of it, whatever a job has
   * made. Rejects with InvalidArgumentError (a symbolic link leads out of it, reason LINK_LEADS_OUT, or the archive is
   * damaged; what came before stays), FailedPreconditionError (no folder), NotFoundError, ResourceExhaustedError.
   */
  async downloadFolder(path: FilePath, folder: string, options: FolderOptions = {}): Promise<number> {
    knownOptions(options, FOLDER);
    if ((await this.stat(path, { ...besideOf(options), follow: true })).type !== "folder") {
      const text = `${inspect(path)} is no folder; use read() or chunks()`;
      throw new FailedPreconditionError(Code.FAILED_PRECONDITION, text, { reason: "NOT_A_FOLDER" });
    }
    const into = await Unpacker.into(textOf(folder, "folder"));
    try {
      for await (const part of this.downloadArchive(path, options)) {
        await into.feed(part);
      }
      return into.finish();
    } finally {
      await into.close();
    }
  }

  /**
   * Makes a folder; with `parents` those above it, too, and it may exist. Rejects with AlreadyExistsError and
   * NotFoundError.
   */
  async makeDir(path: FilePath, options: { mode?: number; parents?: boolean } & CallControl = {}): Promise<FileInfo> {
    knownOptions(options, { ...OPTIONS.control, mode: true, parents: true });
    const request = { ...this.#at(path), mode: count(options.mode ?? 0, "mode"), parents: options.parents ?? false };
    return fileInfo((await this.#client.unary(FileService.method.makeDir, request, controlOf(options))).file);
  }

  /** Renames a file or folder. Rejects with NotFoundError and AlreadyExistsError. */
  async move(
    path: FilePath,
    to: FilePath,
    options: { parents?: boolean; onlyIfAbsent?: boolean } & CallControl = {},
  ): Promise<FileInfo> {
    knownOptions(options, { ...OPTIONS.control, parents: true, onlyIfAbsent: true });
    const request = {
      ...this.#at(path),
      to: pathOf(to, "to"),
      parents: options.parents ?? false,
      onlyIfAbsent: options.onlyIfAbsent ?? false,
    };
    return fileInfo((await this.#client.unary(FileService.method.move, request, controlOf(options))).file);
  }

  /**
   * Copies a file, or a folder with everything in it, inside the sandbox. Rejects with AlreadyExistsError (the copy
   * exists) and NotFoundError.
   */
  async copy(path: FilePath, to: FilePath, options: { parents?: boolean } & CallControl = {}): Promise<FileInfo> {
    knownOptions(options, { ...OPTIONS.control, parents: true });
    const request = { ...this.#at(path), to: pathOf(to, "to"), parents: options.parents ?? false };
    return fileInfo((await this.#client.unary(FileService.method.copy, request, controlOf(options))).file);
  }

  /**
   * Removes a file or folder, and resolves with the number of files that were removed. Rejects with NotFoundError,
   * unless `missingOk` is set, and FailedPreconditionError (a folder that is not empty, without `recursive`).
   */
  async remove(
    path: FilePath,
    options: { recursive?: boolean; missingOk?: boolean } & CallControl = {},
  ): Promise<number> {
    knownOptions(options, { ...OPTIONS.control, recursive: true, missingOk: true });
    const request = { ...this.#at(path), recursive: options.recursive ?? false };
    try {
      return Number((await this.#client.unary(FileService.method.remove, request, controlOf(options))).removed);
    } catch (e) {
      if (options.missingOk === true && e instanceof NotFoundError && e.reason === "FILE_NOT_FOUND") {
        return 0;
      }
      throw e;
    }
  }

  /**
   * Watches a file, or what a folder holds; it has begun when this resolves. `recursive`: also the folders below it;
   * symbolic links are not followed. The iteration ends when the folder is removed or renamed. Writes to the same file
   * are joined; writes through mmap are not seen. Rejects with NotFoundError and ResourceExhaustedError (more than
   * 16,384 folders).
   */
  async watch(path: FilePath = ".", options: { recursive?: boolean } & CallControl = {}): Promise<FileWatch> {
    knownOptions(options, { ...OPTIONS.control, recursive: true });
    const request = { ...this.#at(path), recursive: options.recursive ?? false };
    const stream = this.#client.stream(FileService.method.watch, request, controlOf(options));
    const first = await stream.next();
    if (first.done === true) {
      throw new ProtocolError("the broker ended a watch before it began");
    }
    return new FileWatch(stream, Number(first.value.folders));
  }

  /** Sets the permissions of a file or folder. Rejects with NotFoundError and PermissionDeniedError. */
  async setMode(path: FilePath, mode: number, options: CallControl = {}): Promise<FileInfo> {
    knownOptions(options, OPTIONS.control);
    const request = { ...this.#at(path), mode: count(mode, "mode") };
    return fileInfo((await this.#client.unary(FileService.method.setMode, request, controlOf(options))).file);
  }

  #at(path: FilePath): { sandboxId: string; path: Uint8Array } {
    return { sandboxId: this.#sandboxId, path: pathOf(path) };
  }
}

/**
 * Sends all bytes of a transfer, and resolves with its last message.
 * @internal
 */
export async function sendTransfer<I extends DescMessage, O extends DescMessage>(
  client: Client,
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  contents: Contents,
  options: CallControl,
): Promise<MessageShape<O>> {
  const source = pieces(contents);
  const begun = await source.next(); // a source that fails begins no transfer; a stream without a reader would throw
  const stream = client.stream(method, request, controlOf(options));
  let sending = false;
  try {
    const first = await stream.next();
    const transferId = first.done === true ? "" : (first.value as unknown as { transferId: string }).transferId;
    if (transferId === "") {
      throw new ProtocolError("the broker began a transfer without an id");
    }
    const last = stream.next();
    sending = true;
    const sent = sendAll(client, transferId, begun, source, besideOf(options)).finally(() => {
      sending = false;
    });
    await Promise.race([sent, last]); // the stream may end first: then nobody waits for an idle source
    const end = await last;
    if (end.done === true || (await stream.next()).done !== true) {
      throw new ProtocolError("the broker ended a transfer without a result");
    }
    return end.value;
  } finally {
    stream.cancel();
    const closed = source.return();
    if (sending) {
      closed.catch(() => undefined); // it is closed when its next piece comes, if it ever does
    } else {
      await closed;
    }
  }
}

async function sendAll(
  client: Client,
  transferId: string,
  begun: Piece,
  source: AsyncGenerator<Uint8Array, void, undefined>,
  control: CallControl,
): Promise<void> {
  let offset = 0n;
  const window: Promise<unknown>[] = [];
  try {
    for (let piece = begun; piece.done !== true; piece = await source.next()) {
      const data = piece.value;
      if (window.length === WINDOW) {
        await window.shift();
      }
      const sent = client.unary(FileService.method.send, { transferId, offset, data }, control);
      sent.catch(() => undefined); // one that nobody waits for, after another has failed
      window.push(sent);
      offset += BigInt(data.length);
    }
    await Promise.all(window);
    await client.unary(FileService.method.finish, { transferId, bytes: offset }, control);
  } catch (e) {
    if (!(e instanceof NotFoundError) || e.reason !== "TRANSFER_UNKNOWN") {
      throw e; // otherwise the stream has the reason
    }
  }
}
