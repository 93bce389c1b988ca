// SPDX-License-Identifier: Apache-2.0
// Bytes on the connection: SP messages (nng's REQ/REP wire) and the Frame in each of them.
//
// Both sides open with 8 bytes, 00 'S' 'P' 00 <u16 protocol> 00 00. A message is then a u64 big-endian length and a
// body; over a unix socket one byte 01 stands before it. Where the transport has messages of its own (WebSocket) there
// is neither. The body is u32 call id (big endian, bit 31 set) and a serialized stockade.v1.Frame.
//
// Frames are read and written field by field: that bounds what a hostile peer can make us allocate, and it is fast.
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ProtocolError } from "./errors.js";
import { FrameKind } from "./gen/stockade/v1/wire_pb.js";
import type { WireStatus } from "./status.js";

/** Body of one SP message, bytes. */
export const FRAME_BYTES_MAX = 4 * 1024 * 1024;
/** Payload of one DATA frame, bytes. */
export const DATA_BYTES_MAX = 64 * 1024;
/** Keys and values of one call's metadata, bytes. */
export const METADATA_BYTES_MAX = 8 * 1024;
/** Pairs of metadata of one call. */
export const METADATA_ITEMS_MAX = 32;
/** Details of one status. */
const DETAILS_MAX = 4;
/** Characters of a status message that are kept. */
const STATUS_TEXT_MAX = 4096;

export const PROTOCOL_REQ = 0x30;
export const PROTOCOL_REP = 0x31;
const HELLO_BYTES = 8;

/** Set in the id of each call, as SP has it. */
const ID_REQUEST = 0x80000000;

/** How a transport separates messages. */
export type Framing = "ipc" | "tcp" | "message";

/** The 8 bytes that open a connection. */
export function hello(protocol: number): Uint8Array {
  return Uint8Array.of(0, 0x53, 0x50, 0, protocol >> 8, protocol & 0xff, 0, 0);
}

/** A frame that the client sends. */
export type ClientFrame =
  | {
      kind: FrameKind.CALL;
      method: string;
      payload: Uint8Array;
      timeoutUs: bigint;
      credit: number;
      metadata: readonly (readonly [string, string])[];
    }
  | { kind: FrameKind.WINDOW; credit: number }
  | { kind: FrameKind.PING | FrameKind.PONG; payload: Uint8Array }
  | { kind: FrameKind.CANCEL };

/** A frame that came from the server; a kind that this client does not know is UNSPECIFIED. */
export interface ServerFrame {
  id: number;
  kind: FrameKind;
  payload: Uint8Array;
  status: WireStatus | undefined;
}

// Also those that only a client sends, to distinguish a peer that sends them from a newer broker.
const KINDS: ReadonlyMap<number, FrameKind> = new Map(
  [
    FrameKind.CALL,
    FrameKind.DATA,
    FrameKind.END,
    FrameKind.CANCEL,
    FrameKind.WINDOW,
    FrameKind.PING,
    FrameKind.PONG,
    FrameKind.GOAWAY,
  ].map((kind) => [kind, kind]),
);

const EMPTY: Uint8Array = new Uint8Array(0);

function writeFields(w: BinaryWriter, f: ClientFrame): void {
  w.tag(1, WireType.Varint).int32(f.kind);
  if (f.kind === FrameKind.CALL) {
    w.tag(2, WireType.LengthDelimited).string(f.method);
  }
  if ("payload" in f && f.payload.length > 0) {
    w.tag(3, WireType.LengthDelimited).bytes(f.payload);
  }
  if (f.kind === FrameKind.CALL && f.timeoutUs > 0n) {
    w.tag(5, WireType.Varint).uint64(f.timeoutUs);
  }
  if ("credit" in f && f.credit > 0) {
    w.tag(6, WireType.Varint).uint32(f.credit);
  }
  if (f.kind === FrameKind.CALL) {
    for (const [key, value] of f.metadata) {
      w.tag(8, WireType.LengthDelimited).fork();
      w.tag(1, WireType.LengthDelimited).string(key);
      w.tag(2, WireType.LengthDelimited).string(value);
      w.join();
    }
  }
}

function headerBytes(framing: Framing): number {
  return framing === "message" ? 0 : framing === "ipc" ? 9 : 8;
}

/** One SP message, ready to be written. RangeError when it is larger than FRAME_BYTES_MAX. */
export function encodeFrame(framing: Framing, id: number, frame: ClientFrame): Uint8Array {
  const writer = new BinaryWriter();
  writeFields(writer, frame);
  const fields = writer.finish();
  const body = 4 + fields.length;
  if (body > FRAME_BYTES_MAX) {
    throw new RangeError(`request of ${fields.length} bytes: a frame holds at most ${FRAME_BYTES_MAX}`);
  }
  const header = headerBytes(framing);
  const out = new Uint8Array(header + body);
  const view = new DataView(out.buffer);
  if (framing !== "message") {
    if (framing === "ipc") {
      out[0] = 1;
    }
    view.setBigUint64(header - 8, BigInt(body));
  }
  view.setUint32(header, (ID_REQUEST | id) >>> 0);
  out.set(fields, header + 4);
  return out;
}

function expect(wireType: WireType, expected: WireType, name: string): void {
  if (wireType !== expected) {
    throw new ProtocolError(`frame: field ${name} has wire type ${wireType}`);
  }
}

function readDetail(r: BinaryReader, bytes: number): { typeUrl: string; value: Uint8Array } {
  const end = r.pos + bytes;
  const out: { typeUrl: string; value: Uint8Array } = { typeUrl: "", value: EMPTY };
  while (r.pos < end) {
    const [field, type] = r.tag();
    if (field === 1) {
      expect(type, WireType.LengthDelimited, "status.details.type_url");
      out.typeUrl = r.string();
    } else if (field === 2) {
      expect(type, WireType.LengthDelimited, "status.details.value");
      out.value = r.bytes();
    } else {
      skip(r, type);
    }
  }
  return out;
}

// Not BinaryReader.skip(): it follows groups, which nest without a bound.
function skip(r: BinaryReader, type: WireType): void {
  if (type === WireType.StartGroup || type === WireType.EndGroup) {
    throw new ProtocolError("frame: groups are not used");
  }
  r.skip(type);
}

function readStatus(r: BinaryReader, bytes: number): WireStatus {
  const end = r.pos + bytes;
  const details: { typeUrl: string; value: Uint8Array }[] = [];
  let code = 0;
  let message = "";
  while (r.pos < end) {
    const [field, type] = r.tag();
    if (field === 1) {
      expect(type, WireType.Varint, "status.code");
      code = r.uint32();
    } else if (field === 2) {
      expect(type, WireType.LengthDelimited, "status.message");
      message = r.string().slice(0, STATUS_TEXT_MAX);
    } else if (field === 3) {
      expect(type, WireType.LengthDelimited, "status.details");
      if (details.length === DETAILS_MAX) {
        throw new ProtocolError(`frame: more than ${DETAILS_MAX} details in a status`);
      }
      details.push(readDetail(r, r.uint32()));
    } else {
      skip(r, type);
    }
  }
  if (r.pos !== end) {
    throw new ProtocolError("frame: a status ends within a field");
  }
  return { code, message, details };
}

function readFields(r: BinaryReader, out: ServerFrame): void {
  while (r.pos < r.len) {
    const [field, type] = r.tag();
    if (field === 1) {
      expect(type, WireType.Varint, "kind");
      out.kind = KINDS.get(r.int32()) ?? FrameKind.UNSPECIFIED;
    } else if (field === 3) {
      expect(type, WireType.LengthDelimited, "payload");
      out.payload = r.bytes();
    } else if (field === 4) {
      expect(type, WireType.LengthDelimited, "status");
      const bytes = r.uint32();
      if (bytes > r.len - r.pos) {
        throw new ProtocolError("frame: a length points past its end");
      }
      out.status = readStatus(r, bytes);
    } else {
      skip(r, type);
    }
  }
}

/** Reads the body of one SP message. ProtocolError: it is none. */
export function decodeFrame(body: Uint8Array): ServerFrame {
  if (body.length < 4) {
    throw new ProtocolError(`message of ${body.length} bytes: too short for a call id`);
  }
  const id = new DataView(body.buffer, body.byteOffset, 4).getUint32(0);
  if (id < ID_REQUEST) {
    throw new ProtocolError(`call id 0x${id.toString(16)}: bit 31 is not set`);
  }
  const out: ServerFrame = { id: id - ID_REQUEST, kind: FrameKind.UNSPECIFIED, payload: EMPTY, status: undefined };
  try {
    readFields(new BinaryReader(body.subarray(4)), out);
  } catch (e) {
    if (e instanceof ProtocolError) {
      throw e;
    }
    throw new ProtocolError(`frame: ${e instanceof Error ? e.message : String(e)}`, { cause: e });
  }
  if (out.kind === FrameKind.DATA && out.payload.length > DATA_BYTES_MAX) {
    throw new ProtocolError(`DATA of ${out.payload.length} bytes: at most ${DATA_BYTES_MAX} are allowed`);
  }
  return out;
}

/** Accepts bytes in any pieces, and returns the bodies of complete messages. Never holds more than one body. */
export class SpReader {
  readonly #framing: Framing;
  readonly #header: Uint8Array;
  #headerFill = 0;
  #body: Uint8Array | undefined;
  #bodyFill = 0;
  #helloLeft: number;

  constructor(framing: Framing) {
    this.#framing = framing;
    this.#header = new Uint8Array(9);
    this.#helloLeft = framing === "message" ? 0 : HELLO_BYTES;
  }

  /** The peer's 8 bytes are here, and they were right. */
  get open(): boolean {
    return this.#helloLeft === 0;
  }

  /** Bytes of a message that is not complete yet are held. */
  get partial(): boolean {
    return this.#headerFill > 0 || this.#body !== undefined;
  }

  /** Bodies that `chunk` completes; a body may be a view into it. ProtocolError: the peer does not speak SP. */
  push(chunk: Uint8Array): Uint8Array[] {
    if (this.#framing === "message") {
      if (chunk.length > FRAME_BYTES_MAX) {
        throw new ProtocolError(`message of ${chunk.length} bytes: at most ${FRAME_BYTES_MAX} are allowed`);
      }
      return [chunk];
    }
    const out: Uint8Array[] = [];
    let at = this.#helloLeft > 0 ? this.#takeHello(chunk) : 0;
    while (at < chunk.length) {
      at = this.#body === undefined ? this.#takeHeader(chunk, at, out) : this.#takeBody(chunk, at, out);
    }
    return out;
  }

  #takeHello(chunk: Uint8Array): number {
    const expected = hello(PROTOCOL_REP);
    const n = Math.min(this.#helloLeft, chunk.length);
    for (let i = 0; i < n; i++) {
      if (chunk[i] !== expected[HELLO_BYTES - this.#helloLeft + i]) {
        throw new ProtocolError("the program at this address is not a Stockade broker: it uses another protocol");
      }
    }
    this.#helloLeft -= n;
    return n;
  }

  #takeHeader(chunk: Uint8Array, from: number, out: Uint8Array[]): number {
    const size = headerBytes(this.#framing);
    const n = Math.min(size - this.#headerFill, chunk.length - from);
    this.#header.set(chunk.subarray(from, from + n), this.#headerFill);
    this.#headerFill += n;
    if (this.#headerFill < size) {
      return from + n;
    }
    this.#headerFill = 0;
    const length = this.#bodyLength(size);
    const at = from + n;
    if (chunk.length - at >= length) {
      out.push(chunk.subarray(at, at + length));
      return at + length;
    }
    this.#body = new Uint8Array(length);
    this.#bodyFill = 0;
    return at;
  }

  #bodyLength(size: number): number {
    if (this.#framing === "ipc" && this.#header[0] !== 1) {
      throw new ProtocolError(`message type 0x${(this.#header[0] as number).toString(16)}: 01 was expected`);
    }
    const length = new DataView(this.#header.buffer).getBigUint64(size - 8);
    if (length > BigInt(FRAME_BYTES_MAX)) {
      throw new ProtocolError(`message of ${length} bytes: at most ${FRAME_BYTES_MAX} are allowed`);
    }
    if (length < 4n) {
      throw new ProtocolError(`message of ${length} bytes: too short for a call id`);
    }
    return Number(length);
  }

  #takeBody(chunk: Uint8Array, from: number, out: Uint8Array[]): number {
    const body = this.#body as Uint8Array;
    const n = Math.min(body.length - this.#bodyFill, chunk.length - from);
    body.set(chunk.subarray(from, from + n), this.#bodyFill);
    this.#bodyFill += n;
    if (this.#bodyFill === body.length) {
      out.push(body);
      this.#body = undefined;
    }
    return from + n;
  }
}
