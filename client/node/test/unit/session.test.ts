// SPDX-License-Identifier: Apache-2.0
// The protocol of one connection: bytes and the time in, bytes and events out.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ProtocolError } from "../../src/errors.js";
import { decodeFrame } from "../../src/frame.js";
import { FrameKind } from "../../src/gen/stockade/v1/wire_pb.js";
import { Session } from "../../src/session.js";
import type { CallInit } from "../../src/session.js";
import { HELLO_REP, message } from "../peer.js";

const unary: CallInit = {
  method: "/a.B/C",
  payload: new Uint8Array(0),
  streaming: false,
  timeoutMs: 0,
  credit: 0,
  metadata: [],
};
const stream: CallInit = { ...unary, streaming: true, credit: 2 };

function session(now = 0): Session {
  const s = new Session({ framing: "tcp", keepaliveMs: 20_000, handshakeMs: 5000, now });
  s.receive(HELLO_REP, now);
  s.takeOutput();
  return s;
}

function sent(s: Session): string[] {
  return s.takeOutput().map((bytes) => {
    const f = decodeFrame(bytes.subarray(8));
    return `${FrameKind[f.kind]} ${f.id}`;
  });
}

function refused(what: () => unknown, text: RegExp): void {
  assert.throws(what, (e) => e instanceof ProtocolError && text.test(e.message));
}

test("END for a call that was never made, or has ended, is refused", () => {
  const s = session();
  refused(() => s.receive(message(1, { kind: FrameKind.END }), 0), /never made/);
  const id = s.call(unary);
  s.receive(message(id, { kind: FrameKind.END }), 0);
  refused(() => s.receive(message(id, { kind: FrameKind.END }), 0), /has ended/);
});

test("DATA for a unary call, and DATA without credit, are refused", () => {
  const s = session();
  const one = s.call(unary);
  refused(() => s.receive(message(one, { kind: FrameKind.DATA }), 0), /is no stream/);
  const two = s.call(stream);
  s.receive(message(two, { kind: FrameKind.DATA }), 0);
  s.receive(message(two, { kind: FrameKind.DATA }), 0);
  refused(() => s.receive(message(two, { kind: FrameKind.DATA }), 0), /without credit/);
});

test("frames that only a client sends are refused, and those of unknown kinds ignored", () => {
  const s = session();
  for (const kind of [FrameKind.CALL, FrameKind.CANCEL, FrameKind.WINDOW]) {
    refused(() => s.receive(message(1, { kind }), 0), /only a client sends/);
  }
  const later = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 6, 0x80, 0, 0, 1, 0x08, 0x63); // kind 99
  assert.deepEqual(s.receive(later, 0), []);
});

test("a PING is answered with its id and bytes; one that is too long, or the 17th in 5 s, is refused", () => {
  const s = session();
  s.receive(message(3, { kind: FrameKind.PING, payload: Uint8Array.of(1, 2) }), 0);
  const out = s.takeOutput();
  assert.deepEqual(out, [message(3, { kind: FrameKind.PONG, payload: Uint8Array.of(1, 2) })]);
  refused(() => s.receive(message(3, { kind: FrameKind.PING, payload: new Uint8Array(9) }), 0), /at most 8/);
  const flooded = session();
  for (let i = 0; i < 16; i++) {
    flooded.receive(message(3, { kind: FrameKind.PING }), 100);
  }
  refused(() => flooded.receive(message(3, { kind: FrameKind.PING }), 101), /broker sent more than 16 PINGs in 5 s/);
});

test("a peer that is silent through the handshake is given up at its end", () => {
  const s = new Session({ framing: "tcp", keepaliveMs: 20_000, handshakeMs: 5000, now: 100 });
  assert.equal(s.deadline(), 5100);
  assert.equal(s.tick(5099), undefined);
  assert.match(s.tick(5100) ?? "", /speaks SP/);
});

test("silence brings a PING, and one without an answer ends the connection", () => {
  const s = session();
  assert.equal(s.deadline(), 20_000);
  assert.equal(s.tick(20_000), undefined);
  assert.deepEqual(sent(s), ["PING 0"]);
  s.receive(message(0, { kind: FrameKind.PONG }), 20_010);
  assert.equal(s.deadline(), 40_010);
  s.tick(40_010);
  assert.deepEqual(sent(s), ["PING 0"]);
  assert.match(s.tick(60_010) ?? "", /the broker has not responded for 40 s/);
});

test("frames of an unknown kind do not replace the answer to a PING", () => {
  const later = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 6, 0x80, 0, 0, 1, 0x08, 0x63); // kind 99
  const s = session();
  s.receive(later, 19_000);
  assert.equal(s.tick(20_000), undefined);
  assert.deepEqual(sent(s), ["PING 0"]);
  s.receive(later, 39_000);
  assert.match(s.tick(40_000) ?? "", /has not responded/);
});

test("a keepalive below the broker's own limit on PINGs is raised to it", () => {
  const s = new Session({ framing: "message", keepaliveMs: 1, handshakeMs: 5000, now: 0 });
  s.assumeOpen();
  assert.equal(s.deadline(), 6000);
});

test("a cancelled call is told nothing more, but its late DATA and END are still the peer's right", () => {
  const s = session();
  const id = s.call(stream);
  s.cancel(id);
  s.cancel(id);
  assert.deepEqual(sent(s), [`CALL ${id}`, `CANCEL ${id}`]);
  assert.deepEqual(s.receive(message(id, { kind: FrameKind.DATA }), 0), []);
  assert.equal(s.calls, 1);
  assert.deepEqual(s.receive(message(id, { kind: FrameKind.END }), 0), []);
  assert.equal(s.calls, 0);
});

test("credit that was granted may be used", () => {
  const s = session();
  const id = s.call(stream);
  s.grant(id, 1);
  for (let i = 0; i < 3; i++) {
    assert.equal(s.receive(message(id, { kind: FrameKind.DATA }), 0).length, 1);
  }
  assert.deepEqual(sent(s), [`CALL ${id}`, `WINDOW ${id}`]);
});

test("after GOAWAY no call is begun, and those under way still end", () => {
  const s = session();
  const id = s.call(unary);
  const events = s.receive(message(id, { kind: FrameKind.GOAWAY, status: { code: 14, message: "bye" } }), 0);
  assert.equal(events[0]?.type, "goaway");
  assert.equal(s.draining, true);
  assert.throws(() => s.call(unary), /takes none/);
  assert.equal(s.receive(message(id, { kind: FrameKind.END }), 0)[0]?.type, "end");
});

test("the END by which the peer refuses a call that met its GOAWAY on the way is no error", () => {
  const s = session();
  const begun = s.call(unary);
  const late = s.call(unary);
  s.receive(message(begun, { kind: FrameKind.GOAWAY }), 0);
  assert.equal(s.calls, 1);
  assert.deepEqual(s.receive(message(late, { kind: FrameKind.END, status: { code: 14, message: "bye" } }), 0), []);
  assert.equal(s.receive(message(begun, { kind: FrameKind.END }), 0)[0]?.type, "end");
  refused(() => s.receive(message(begun, { kind: FrameKind.END }), 0), /has ended/);
  refused(() => s.receive(message(late + 1, { kind: FrameKind.END }), 0), /never made/);
});

test("there is room for 1,024 calls and for 128 streams, and no more", () => {
  const s = session();
  for (let i = 0; i < 128; i++) {
    s.call(stream);
  }
  assert.equal(s.hasRoom(true), false);
  for (let i = 128; i < 1024; i++) {
    s.call(unary);
  }
  assert.equal(s.hasRoom(false), false);
  assert.throws(() => s.call(unary), /takes none/);
});
