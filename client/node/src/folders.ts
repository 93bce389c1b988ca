// SPDX-License-Identifier: Apache-2.0
// Folders of this machine as tar archives (GNU's headers, as the broker packs them).
//
// An archive that comes from a sandbox is hostile: a job may have made any file, and any bytes. Only files, folders and
// symbolic links that stay in the folder are accepted. Node opens by path, so each folder on the way to an entry is
// examined first: a link is never passed, and an archive cannot put one in the place of a folder that was examined.
//
// Names are bytes. Here they are strings of one character per byte ("latin1"), which join and split like others.
import { constants } from "node:fs";
import type { Stats } from "node:fs";
import { lstat, mkdir, open, opendir, readlink, symlink, unlink } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { Code, DataLossError, InvalidArgumentError, ResourceExhaustedError } from "./errors.js";

const BLOCK = 512;
const PIECE_BYTES = 60 * 1024;
const NAME_FIELD = 100;
const NAME_BYTES_MAX = 4096;
const LEVELS_MAX = 128;

const REGULAR = "0";
const LINK = "2";
const FOLDER = "5";
const LONG_NAME = "L";
const LONG_LINK = "K";

/** What a header says. */
interface Entry {
  name: string;
  type: string;
  mode: number;
  size: number;
  /** Seconds. */
  modified: number;
  link: string;
}

function bytesOf(name: string): Buffer {
  return Buffer.from(name, "latin1");
}

function localName(path: string): string {
  return Buffer.from(path).toString("latin1");
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function codeOf(e: unknown): string | undefined {
  return (e as NodeJS.ErrnoException).code;
}

// ---- packing

function number(size: number, value: number): Buffer {
  const text = value.toString(8);
  if (text.length < size) {
    return Buffer.from(text.padStart(size - 1, "0") + "\0", "latin1");
  }
  const field = Buffer.alloc(size);
  field.writeBigUInt64BE(BigInt(value), size - 8);
  field[0] = 0x80;
  return field;
}

function header(entry: Entry): Buffer {
  const block = Buffer.alloc(BLOCK);
  bytesOf(entry.name).copy(block, 0, 0, NAME_FIELD);
  number(8, entry.mode).copy(block, 100);
  number(8, 0).copy(block, 108);
  number(8, 0).copy(block, 116);
  number(12, entry.size).copy(block, 124);
  number(12, entry.modified).copy(block, 136);
  block.write(entry.type, 156, "latin1");
  bytesOf(entry.link).copy(block, 157, 0, NAME_FIELD);
  block.write("ustar  \0", 257, "latin1");
  block.write(checksum(block).toString(8).padStart(6, "0") + "\0 ", 148, "latin1");
  return block;
}

function checksum(block: Uint8Array): number {
  return block.reduce((sum, byte, at) => sum + (at >= 148 && at < 156 ? 0x20 : byte), 0);
}

// A name that does not fit into its field goes first, as a file of its own.
function long(type: string, text: string): Buffer[] {
  if (text.length <= NAME_FIELD) {
    return [];
  }
  const size = text.length + 1;
  const first = header({ name: "././@LongLink", type, mode: 0o644, size, modified: 0, link: "" });
  return [first, bytesOf(text), Buffer.alloc(1 + padding(size))];
}

function headers(name: string, type: string, stat: Stats, link = ""): Buffer {
  const entry = {
    name,
    type,
    mode: stat.mode & 0o777,
    size: type === REGULAR ? stat.size : 0,
    modified: Math.max(0, Math.floor(stat.mtimeMs / 1000)),
    link,
  };
  return Buffer.concat([...long(LONG_NAME, name), ...long(LONG_LINK, link), header(entry)]);
}

async function* packFile(path: string, name: string): AsyncGenerator<Uint8Array, void, undefined> {
  const file = await open(bytesOf(path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = await file.stat();
    if (!stat.isFile()) {
      throw new Error(`${name}: it is no regular file any more`);
    }
    yield headers(name, REGULAR, stat);
    for (let left = stat.size; left > 0; ) {
      const want = Math.min(left, PIECE_BYTES);
      const { bytesRead, buffer } = await file.read(Buffer.alloc(want), 0, want);
      // one that becomes shorter meanwhile is filled up, since its size has been sent
      const piece = bytesRead > 0 ? buffer.subarray(0, bytesRead) : buffer;
      yield piece;
      left -= piece.length;
    }
    yield Buffer.alloc(padding(stat.size));
  } finally {
    await file.close();
  }
}

async function namesIn(path: string): Promise<string[]> {
  const names: string[] = [];
  const folder = await opendir(bytesOf(path), { encoding: "latin1" });
  for await (const entry of folder) {
    names.push(entry.name);
  }
  return names.sort();
}

async function* packFolder(path: string, prefix: string, level: number): AsyncGenerator<Uint8Array, void, undefined> {
  if (level > LEVELS_MAX) {
    throw new ResourceExhaustedError(Code.RESOURCE_EXHAUSTED, `${prefix}: more than ${LEVELS_MAX} levels`);
  }
  for (const name of await namesIn(path)) {
    const inner = `${path}/${name}`;
    const stat = await lstat(bytesOf(inner));
    if (stat.isFile()) {
      yield* packFile(inner, prefix + name);
    } else if (stat.isSymbolicLink()) {
      const target = await readlink(bytesOf(inner), { encoding: "buffer" });
      yield headers(prefix + name, LINK, stat, target.toString("latin1"));
    } else if (stat.isDirectory()) {
      yield headers(`${prefix}${name}/`, FOLDER, stat);
      yield* packFolder(inner, `${prefix}${name}/`, level + 1);
    }
  }
}

/** An archive of what a folder holds. FIFOs, sockets and devices are left out. */
export async function* pack(folder: string): AsyncGenerator<Uint8Array, void, undefined> {
  yield* packFolder(localName(folder), "", 1);
  yield Buffer.alloc(2 * BLOCK);
}

// ---- unpacking

function refused(name: string, why: string, reason = "ARCHIVE_REFUSED"): InvalidArgumentError {
  return new InvalidArgumentError(Code.INVALID_ARGUMENT, `unpack ${JSON.stringify(name.slice(0, 200))}: ${why}`, {
    reason,
  });
}

function textIn(block: Buffer, from: number, size: number): string {
  const text = block.toString("latin1", from, from + size);
  const end = text.indexOf("\0");
  return end < 0 ? text : text.slice(0, end);
}

function numberIn(block: Buffer, from: number, size: number): number {
  if (block[from] === 0x80) {
    const value = block.readBigUInt64BE(from + size - 8);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) {
      throw refused("an archive", "a number is too large");
    }
    return Number(value);
  }
  const text = textIn(block, from, size).trim();
  if (!/^[0-7]*$/.test(text)) {
    throw refused("an archive", "a header is damaged");
  }
  return text === "" ? 0 : parseInt(text, 8);
}

function entryOf(block: Buffer): Entry {
  if (numberIn(block, 148, 8) !== checksum(block)) {
    throw refused("an archive", "a header has a wrong checksum");
  }
  return {
    name: textIn(block, 0, NAME_FIELD),
    type: block.toString("latin1", 156, 157),
    mode: numberIn(block, 100, 8) & 0o777,
    size: numberIn(block, 124, 12),
    modified: numberIn(block, 136, 12),
    link: textIn(block, 157, NAME_FIELD),
  };
}

function parts(path: string): string[] {
  return path.split("/").filter((n) => n !== "" && n !== ".");
}

function namesOf(path: string): string[] {
  const names = parts(path);
  if (path.startsWith("/") || names.includes("..")) {
    throw refused(path, "the name is absolute, or has '..'");
  }
  if (names.length > LEVELS_MAX) {
    throw refused(path, "it has too many levels");
  }
  return names;
}

/**
 * Whether a symbolic link, so many folders deep, leads to somewhere in the folder. The folders above it are no links,
 * so as many ".." as there are folders stay inside. After another name ".." may lead anywhere: that name can be a link.
 */
export function stays(depth: number, target: string): boolean {
  const names = parts(target);
  const named = names.findIndex((n) => n !== "..");
  const up = named < 0 ? names.length : named;
  return target !== "" && !target.startsWith("/") && up <= depth && !names.slice(up).includes("..");
}

/** Unpacks an archive into a folder, in parts of any size. Existing files are replaced. */
export class Unpacker {
  readonly #root: string;
  readonly #folders = new Set<string>(); // that are known to be none of them links
  readonly #texts = new Map<string, string>(); // long names, for the next entry
  #block = Buffer.alloc(0); // of a header, or of a long name
  #want = BLOCK;
  #long = "";
  #file: { handle: FileHandle; entry: Entry; left: number } | undefined;
  #padding = 0;
  #ended = false;
  #entries = 0;

  private constructor(root: string) {
    this.#root = root;
  }

  /** Makes the folder if it is missing. */
  static async into(folder: string): Promise<Unpacker> {
    await mkdir(folder).catch((e: unknown) => {
      if (codeOf(e) !== "EEXIST") {
        throw e;
      }
    });
    return new Unpacker(localName(folder));
  }

  /** Takes the next part. */
  async feed(data: Uint8Array): Promise<void> {
    let rest = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    while (rest.length > 0 && !this.#ended) {
      const n = this.#file === undefined ? await this.#feedBlock(rest) : await this.#feedFile(this.#file, rest);
      rest = rest.subarray(n);
    }
  }

  /** The number of entries. DataLossError: the archive ended early. */
  finish(): number {
    if (!this.#ended) {
      throw new DataLossError(Code.DATA_LOSS, "the archive ends early", { reason: "ARCHIVE_CUT" });
    }
    return this.#entries;
  }

  /** Closes what is open. */
  async close(): Promise<void> {
    await this.#file?.handle.close();
    this.#file = undefined;
  }

  async #feedFile(file: { handle: FileHandle; left: number }, rest: Buffer): Promise<number> {
    const { bytesWritten } = await file.handle.write(rest, 0, Math.min(rest.length, file.left));
    file.left -= bytesWritten;
    if (file.left === 0) {
      await this.#endFile();
    }
    return bytesWritten;
  }

  async #feedBlock(rest: Buffer): Promise<number> {
    if (this.#padding > 0) {
      const n = Math.min(rest.length, this.#padding);
      this.#padding -= n;
      return n;
    }
    const n = Math.min(rest.length, this.#want - this.#block.length);
    this.#block = Buffer.concat([this.#block, rest.subarray(0, n)]);
    if (this.#block.length === this.#want) {
      const block = this.#block;
      this.#block = Buffer.alloc(0);
      this.#want = BLOCK;
      await this.#take(block);
    }
    return n;
  }

  async #take(block: Buffer): Promise<void> {
    if (this.#long !== "") {
      this.#texts.set(this.#long, textIn(block, 0, block.length));
      this.#long = "";
      return;
    }
    if (block.every((byte) => byte === 0)) {
      this.#ended = true;
      return;
    }
    const entry = entryOf(block);
    if (entry.type === LONG_NAME || entry.type === LONG_LINK) {
      if (entry.size === 0 || entry.size > NAME_BYTES_MAX) {
        throw refused("an archive", "a name is too long");
      }
      this.#long = entry.type;
      this.#want = entry.size + padding(entry.size);
      return;
    }
    entry.name = this.#texts.get(LONG_NAME) ?? entry.name;
    entry.link = this.#texts.get(LONG_LINK) ?? entry.link;
    this.#texts.clear();
    await this.#unpack(entry);
  }

  async #unpack(entry: Entry): Promise<void> {
    const names = namesOf(entry.name);
    const last = names.pop();
    this.#entries++;
    if (last === undefined) {
      return; // the folder itself
    }
    let path = this.#root;
    for (const name of names) {
      path = `${path}/${name}`;
      await this.#enter(path, entry.name);
    }
    path = `${path}/${last}`;
    if (entry.type === FOLDER) {
      await this.#makeFolder(path, entry);
    } else if (entry.type === LINK) {
      if (!stays(names.length, entry.link)) {
        throw refused(entry.name, "the symbolic link leads out of the folder", "LINK_LEADS_OUT");
      }
      await remove(path);
      await symlink(bytesOf(entry.link), bytesOf(path));
    } else if (entry.type === REGULAR || entry.type === "\0") {
      await this.#beginFile(path, entry);
    } else {
      throw refused(entry.name, "only files, folders and symbolic links are unpacked");
    }
  }

  // Makes a folder, or sees that what is there is one.
  async #enter(path: string, name: string): Promise<void> {
    if (this.#folders.has(path)) {
      return;
    }
    await mkdir(bytesOf(path), 0o755).catch((e: unknown) => {
      if (codeOf(e) !== "EEXIST") {
        throw e;
      }
    });
    if (!(await lstat(bytesOf(path))).isDirectory()) {
      throw refused(name, "a link or a file is on the way to it");
    }
    this.#folders.add(path);
  }

  async #makeFolder(path: string, entry: Entry): Promise<void> {
    await this.#enter(path, entry.name);
    const folder = await open(bytesOf(path), constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    await folder.chmod(entry.mode | 0o700).finally(() => folder.close()); // its files may follow
  }

  async #beginFile(path: string, entry: Entry): Promise<void> {
    await remove(path);
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    this.#file = { handle: await open(bytesOf(path), flags, 0o600), entry, left: entry.size };
    this.#padding = padding(entry.size);
    if (entry.size === 0) {
      await this.#endFile();
    }
  }

  async #endFile(): Promise<void> {
    const file = this.#file;
    if (file === undefined) {
      return;
    }
    await file.handle.chmod(file.entry.mode);
    if (file.entry.modified > 0) {
      await file.handle.utimes(file.entry.modified, file.entry.modified);
    }
    this.#file = undefined;
    await file.handle.close();
  }
}

async function remove(path: string): Promise<void> {
  await unlink(bytesOf(path)).catch((e: unknown) => {
    if (codeOf(e) !== "ENOENT") {
      throw e;
    }
  });
}
