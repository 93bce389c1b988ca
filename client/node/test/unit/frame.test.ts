// SPDX-License-Identifier: Apache-2.0
// Byte vectors of the wire, and what is refused on it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { ProtocolError } from "../../src/errors.js";
import { DATA_BYTES_MAX, FRAME_BYTES_MAX, SpReader, decodeFrame, encodeFrame, hello } from "../../src/frame.js";
import { FrameKind, FrameSchema } from "../../src/gen/stockade/v1/wire_pb.js";
import { HELLO_REP, body, message } from "../peer.js";

function bytes(hex: string): Uint8Array {
  return Uint8Array.from(Buffer.from(hex.replaceAll(" ", ""), "hex"));
}

function refused(what: () => unknown, text: RegExp): void {
  assert.throws(what, (e) => e instanceof ProtocolError && text.test(e.message));
}

function opened(framing: "ipc" | "tcp" = "tcp"): SpReader {
  const reader = new SpReader(framing);
  reader.push(HELLO_REP);
  return reader;
}

function lengthHeader(length: bigint, ipc = false): Uint8Array {
  const out = new Uint8Array(ipc ? 9 : 8);
  out[0] = ipc ? 1 : 0;
  new DataView(out.buffer).setBigUint64(ipc ? 1 : 0, length);
  return out;
}

test("a peer that answers as another protocol than REP is refused at the first wrong byte", () => {
  refused(() => new SpReader("tcp").push(bytes("00 53 50 00 00 30")), /not a Stockade broker/);
  const http = new TextEncoder().encode("HTTP/1.1 400 Bad Request");
  refused(() => new SpReader("ipc").push(http), /not a Stockade broker/);
});

test("lengths of 2^64-1, of one byte too many and of three bytes are refused before anything is allocated", () => {
  refused(() => opened().push(lengthHeader(2n ** 64n - 1n)), /at most 4194304/);
  refused(() => opened().push(lengthHeader(BigInt(FRAME_BYTES_MAX) + 1n)), /at most 4194304/);
  refused(() => opened().push(lengthHeader(3n)), /too short/);
  refused(() => opened("ipc").push(lengthHeader(2n ** 63n, true)), /at most 4194304/);
});

test("a message over a unix socket that does not begin with 01 is refused", () => {
  refused(() => opened("ipc").push(bytes("02 0000000000000004 80000001")), /type 0x2/);
});

test("a call id without bit 31 is refused, and a body without a whole id", () => {
  refused(() => decodeFrame(bytes("00000001 0803")), /bit 31/);
  refused(() => decodeFrame(bytes("800000")), /too short/);
});

test("frames that are cut, overlong, of wrong types or with groups are refused", () => {
  refused(() => decodeFrame(bytes("80000001 08")), /frame/); // tag without value
  refused(() => decodeFrame(bytes("80000001 1a ff01 00")), /frame/); // length beyond the end
  refused(() => decodeFrame(bytes("80000001 22 ff01 00")), /past its end/);
  refused(() => decodeFrame(bytes("80000001 0a 01 00")), /kind has wire type/);
  refused(() => decodeFrame(bytes("80000001 18 01")), /payload has wire type/);
  refused(() => decodeFrame(bytes("80000001 0b 0b 0b")), /frame/);
  refused(() => decodeFrame(Uint8Array.from([...bytes("80000001"), ...Array<number>(58_000).fill(0x7b)])), /groups/);
  refused(() => decodeFrame(bytes("80000001 08 ffffffffffffffffffff01")), /frame/);
  refused(() => decodeFrame(bytes("80000001 22 03 12 05 41")), /frame/); // status message beyond its status
});

test("DATA of more than 64 KiB and a status with five details are refused", () => {
  const data = create(FrameSchema, { kind: FrameKind.DATA, payload: new Uint8Array(DATA_BYTES_MAX + 1) });
  refused(() => decodeFrame(body(1, toBinary(FrameSchema, data)).subarray(8)), /at most 65536/);
  const details = Array.from({ length: 5 }, () => ({ typeUrl: "x", value: new Uint8Array(0) }));
  const end = create(FrameSchema, { kind: FrameKind.END, status: { code: 13, details } });
  refused(() => decodeFrame(body(1, toBinary(FrameSchema, end)).subarray(8)), /more than 4 details/);
});

test("a request that does not fit into a frame is refused before it is sent", () => {
  const payload = new Uint8Array(FRAME_BYTES_MAX);
  const call = { kind: FrameKind.CALL, method: "/a.B/C", payload, timeoutUs: 0n, credit: 0, metadata: [] } as const;
  assert.throws(() => encodeFrame("tcp", 1, call), RangeError);
});

test("the hello, a CALL and a CANCEL have the bytes that the wire says", () => {
  assert.deepEqual(hello(0x30), bytes("00 53 50 00 00 30 00 00"));
  const call = encodeFrame("ipc", 5, {
    kind: FrameKind.CALL,
    method: "/a.B/C",
    payload: bytes("0a0178"),
    timeoutUs: 1_000_000n,
    credit: 32,
    metadata: [["k", "v"]],
  });
  const fields = "0801 1206 2f612e422f43 1a03 0a0178 28c0843d 3020 4206 0a016b 120176";
  assert.deepEqual(call, bytes(`01 0000000000000021 80000005 ${fields}`));
  assert.deepEqual(encodeFrame("tcp", 6, { kind: FrameKind.CANCEL }), bytes("0000000000000006 80000006 0804"));
  assert.deepEqual(encodeFrame("message", 6, { kind: FrameKind.CANCEL }), bytes("80000006 0804"));
});

test("what is written here equals what the generated Frame writes", () => {
  const metadata: [string, string][] = [
    ["authorization", "Bearer ü"],
    ["idempotency-key", "00ff"],
  ];
  for (const timeoutUs of [0n, 1n, 2n ** 40n]) {
    const frame = {
      kind: FrameKind.CALL,
      method: "/stockade.v1.ProcessService/Run",
      payload: new Uint8Array(300).fill(7),
      timeoutUs,
      credit: 200,
      metadata,
    } as const;
    const generated = { ...frame, metadata: metadata.map(([key, value]) => ({ key, value })) };
    assert.deepEqual(encodeFrame("tcp", 77, frame), message(77, generated));
  }
  assert.deepEqual(
    encodeFrame("tcp", 1, { kind: FrameKind.WINDOW, credit: 16 }),
    message(1, { kind: FrameKind.WINDOW, credit: 16 }),
  );
});

test("what the generated Frame writes is read back, with unknown kinds and fields passed over", () => {
  const status = { code: 8, message: "full", details: [{ typeUrl: "t", value: Uint8Array.of(1, 2) }] };
  const end = message(9, { kind: FrameKind.END, payload: Uint8Array.of(3), status });
  const read = decodeFrame(end.subarray(8));
  assert.equal(read.id, 9);
  assert.equal(read.kind, FrameKind.END);
  assert.deepEqual([...read.payload], [3]);
  assert.equal(read.status?.code, 8);
  assert.equal(read.status.details[0]?.typeUrl, "t");
  const later = decodeFrame(bytes("80000001 0863 9a0603 616263"));
  assert.equal(later.kind, FrameKind.UNSPECIFIED);
});

test("messages that come in halves, at every place where they can be cut, are put together", () => {
  for (const framing of ["ipc", "tcp"] as const) {
    const first = encodeFrame(framing, 1, { kind: FrameKind.PONG, payload: bytes("0102030405060708") });
    const second = encodeFrame(framing, 2, { kind: FrameKind.CANCEL });
    const stream = Buffer.concat([HELLO_REP, first, second]);
    for (let cut = 0; cut <= stream.length; cut++) {
      const reader = new SpReader(framing);
      const bodies = [...reader.push(stream.subarray(0, cut)), ...reader.push(stream.subarray(cut))];
      assert.deepEqual(bodies.map((b) => decodeFrame(b).id), [1, 2], `${framing}, cut at ${cut}`);
      assert.equal(reader.partial, false);
    }
    const slow = new SpReader(framing);
    const one = [...stream].flatMap((b) => slow.push(Uint8Array.of(b)));
    assert.deepEqual(one.map((b) => decodeFrame(b).id), [1, 2]);
  }
});
