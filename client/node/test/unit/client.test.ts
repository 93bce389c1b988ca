// SPDX-License-Identifier: Apache-2.0
// Calls against a peer that misbehaves: what is sent again and what never, what a bad reply does, deadlines, credits.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { ProcessService, RunResponseSchema } from "../../src/gen/stockade/v1/process_service_pb.js";
import {
  SandboxServiceCreateResponseSchema,
  SandboxService,
  SandboxServiceGetResponseSchema,
} from "../../src/gen/stockade/v1/sandbox_service_pb.js";
import { InfoResponseSchema, SystemService } from "../../src/gen/stockade/v1/system_service_pb.js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  FrameKind,
  QuotaFailureSchema,
  RetryInfoSchema,
} from "../../src/gen/stockade/v1/wire_pb.js";
import { Peer, metadata, until } from "../peer.js";
import type { PeerConnection, Received } from "../peer.js";

const createMethod = SandboxService.method.create;
const getMethod = SandboxService.method.get;
const infoMethod = SystemService.method.info;
const runMethod = ProcessService.method.run;

function clientOf(peer: Peer, options: { token?: string } = {}): Client {
  return new Client({ address: "tcp://127.0.0.1:1", dial: peer.dial, reconnectTimeout: 1, ...options });
}

function isCall(r: Received, name: string): boolean {
  return r.frame.kind === FrameKind.CALL && r.frame.method.endsWith(`/${name}`);
}

function answerInfo(r: Received, c: PeerConnection, uptimeMs: number): boolean {
  if (!isCall(r, "Info")) {
    return false;
  }
  c.end(r.id, InfoResponseSchema, { uptimeMs: BigInt(uptimeMs) });
  return true;
}

test("a reply that is no protobuf message ends the call with a ProtocolError and closes the connection", async () => {
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.END, payload: Uint8Array.of(0x0a, 0xff) });
  });
  await assert.rejects(clientOf(peer).unary(infoMethod, {}), errors.ProtocolError);
  await until(() => peer.last().closed);
});

test("a reply of a million empty sub-messages is refused before it becomes objects", async () => {
  const flood = new Uint8Array(2_000_000);
  for (let i = 0; i < flood.length; i += 2) {
    flood[i] = 0x3a; // templates, length 0
  }
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.END, payload: flood });
  });
  await assert.rejects(clientOf(peer).unary(infoMethod, {}), /more than 262144 fields/);
});

test("a frame that breaks the protocol ends every call on the connection with a ProtocolError", async () => {
  const peer = new Peer((r, c) => {
    if (isCall(r, "Get")) {
      c.frame(999, { kind: FrameKind.END });
    }
  });
  const client = clientOf(peer);
  const other = client.unary(infoMethod, {});
  const bad = client.unary(getMethod, { id: "x" });
  await assert.rejects(bad, (e) => e instanceof errors.ProtocolError && e.message.includes("never made"));
  await assert.rejects(other, errors.ProtocolError);
  assert.equal(peer.calls().length, 2);
});

test("half a frame and then the end is a lost connection, not a hang", async () => {
  const peer = new Peer((r, c) => {
    if (isCall(r, "Create")) {
      c.send(Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 40, 0x80));
      peer.refuse = true;
      c.drop();
    }
  });
  await assert.rejects(clientOf(peer).unary(createMethod, {}), /nobody listens/);
});

test("a request beyond what a frame holds, and metadata beyond its bounds, are refused on this side", async () => {
  const peer = new Peer(() => undefined);
  const client = clientOf(peer);
  const huge = { command: { args: ["cat"], stdin: new Uint8Array(5_000_000) } };
  await assert.rejects(client.stream(runMethod, huge).next(), errors.InvalidArgumentError);
  for (const bad of [{ "Upper-Case": "x" }, { key: "line\nbreak" }, { key: "x".repeat(4097) }, { "": "x" }]) {
    await assert.rejects(client.unary(infoMethod, {}, { metadata: bad }), errors.InvalidArgumentError);
  }
  const many = Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`k${i}`, "v"]));
  await assert.rejects(client.unary(infoMethod, {}, { metadata: many }), errors.InvalidArgumentError);
  assert.equal(peer.calls().length, 0);
});

test("each code has its class, and unknown codes have one", async () => {
  let code = 0;
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.END, status: { code, message: "why" } });
  });
  const client = clientOf(peer);
  const seen = new Set<string>();
  for (code = 1; code <= 17; code++) {
    const e: unknown = await client.unary(infoMethod, {}).catch((x: unknown) => x);
    assert.ok(e instanceof errors.StockadeError);
    assert.equal(e.code, code);
    assert.equal(e.message, "why");
    assert.equal(e.method, "/stockade.v1.SystemService/Info");
    assert.equal(e.name, e.constructor.name);
    seen.add(e.name);
  }
  assert.equal(seen.size, 16);
  assert.equal(errors.codeName(3), "INVALID_ARGUMENT");
  assert.equal(errors.codeName(99), "UNKNOWN");
});

test("an error carries its reason, rule, fields, quotas and delay", async () => {
  const details = [
    anyPack(ErrorInfoSchema, create(ErrorInfoSchema, {
      reason: "LIMIT_ABOVE_MAXIMUM",
      metadata: { subject: "limits.memory_bytes", hint: "ask for less" },
    })),
    anyPack(BadRequestSchema, create(BadRequestSchema, { fieldViolations: [{ field: "a.b", description: "no" }] })),
    anyPack(QuotaFailureSchema, create(QuotaFailureSchema, { violations: [{ subject: "uid:1", description: "5" }] })),
    anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelayMs: 1500 })),
  ];
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.END, status: { code: 8, message: "full", details } });
  });
  const e: unknown = await clientOf(peer).unary(infoMethod, {}).catch((x: unknown) => x);
  assert.ok(e instanceof errors.ResourceExhaustedError);
  assert.equal(e.reason, "LIMIT_ABOVE_MAXIMUM");
  assert.equal(e.subject, "limits.memory_bytes");
  assert.equal(e.hint, "ask for less");
  assert.deepEqual(e.fields, [{ field: "a.b", description: "no" }]);
  assert.deepEqual(e.quotas, [{ subject: "uid:1", description: "5" }]);
  assert.equal(e.retryAfter, 1.5);
});

test("a refusal says the rule, what is allowed and how to ask", async () => {
  const metadata = { rule: "base/no-push", allowed: "commands other than git", hint: "ask" };
  const details = [anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason: "POLICY_DENIED", metadata }))];
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.END, status: { code: 7, message: "the policy refuses it", details } });
  });
  const e: unknown = await clientOf(peer).unary(infoMethod, {}).catch((x: unknown) => x);
  assert.ok(e instanceof errors.PermissionDeniedError);
  assert.deepEqual({ rule: e.rule, allowed: e.allowed, hint: e.hint }, metadata);
  assert.equal(
    String(e),
    "PermissionDeniedError: the policy refuses it " +
      "[POLICY_DENIED, rule: base/no-push; allowed: commands other than git; hint: ask]",
  );
  assert.equal(String(new errors.NotFoundError(5, "no")), "NotFoundError: no");
});

test("a retry delay of 49 days is shortened to an hour", async () => {
  const details = [anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelayMs: 4294967295 }))];
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.END, status: { code: 8, message: "full", details } });
  });
  const e: unknown = await clientOf(peer).unary(infoMethod, {}).catch((x: unknown) => x);
  assert.ok(e instanceof errors.ResourceExhaustedError);
  assert.equal(e.retryAfter, 3600);
});

test("details that are no messages do not hide the error", async () => {
  const typeUrl = "type.googleapis.com/stockade.v1.ErrorInfo";
  const details = [{ typeUrl, value: Uint8Array.of(0x0a, 0xff) }];
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.END, status: { code: 5, message: "gone", details } });
  });
  const e: unknown = await clientOf(peer).unary(infoMethod, {}).catch((x: unknown) => x);
  assert.ok(e instanceof errors.NotFoundError);
  assert.equal(e.reason, "BAD_DETAILS");
});

test("a one-shot run whose connection is lost is never sent again", async () => {
  const peer = new Peer((r, c) => {
    if (isCall(r, "Run")) {
      c.drop();
    }
  });
  const stream = clientOf(peer).stream(runMethod, { command: { args: ["true"] } });
  await assert.rejects(stream.next(), errors.ConnectionLostError);
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.equal(peer.calls().length, 1);
});

test("a call that changes something is not sent again to a broker that was started anew", async () => {
  const peer = new Peer((r, c) => {
    if (!answerInfo(r, c, 0)) {
      c.drop();
    }
  });
  await assert.rejects(clientOf(peer).unary(createMethod, {}), /started anew/);
  assert.equal(peer.calls().filter((r) => isCall(r, "Create")).length, 1);
});

test("a call that changes something is not sent again when the broker does not say how long it runs", async () => {
  const peer = new Peer((r, c) => {
    if (isCall(r, "Info")) {
      c.frame(r.id, { kind: FrameKind.END, status: { code: 7, message: "no" } });
    } else {
      c.drop();
    }
  });
  await assert.rejects(clientOf(peer).unary(createMethod, {}), errors.ConnectionLostError);
  assert.equal(peer.calls().filter((r) => isCall(r, "Create")).length, 1);
});

test("a call that changes something is sent again to the same broker with the same key", async () => {
  let drops = 2;
  const peer = new Peer((r, c) => {
    if (answerInfo(r, c, 3_600_000)) {
      return;
    }
    if (drops-- > 0) {
      c.drop();
    } else {
      c.end(r.id, SandboxServiceCreateResponseSchema, { sandbox: { id: "a".repeat(32) } });
    }
  });
  const answer = await clientOf(peer).unary(createMethod, {});
  assert.equal(answer.sandbox?.id, "a".repeat(32));
  const keys = peer.calls().filter((r) => isCall(r, "Create")).map((r) => metadata(r, "idempotency-key"));
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  assert.match(keys[0] ?? "", /^[0-9a-f]{32}$/);
});

test("an idempotent call is sent again without a key, but not for ever", async () => {
  const peer = new Peer((_, c) => {
    c.drop();
  });
  await assert.rejects(clientOf(peer).unary(getMethod, { id: "x" }), errors.ConnectionLostError);
  assert.equal(peer.calls().length, 6);
  assert.ok(peer.calls().every((r) => metadata(r, "idempotency-key") === undefined));
});

test("a call that GOAWAY left out is made on a new connection; one that it kept is answered on the old", async () => {
  const held: Received[] = [];
  const peer = new Peer((r, c) => {
    if (peer.connections.length === 1) {
      held.push(r);
      if (held.length === 2) {
        c.frame(1, { kind: FrameKind.GOAWAY, status: { code: 14, message: "draining" } });
        c.end(1, SandboxServiceGetResponseSchema, { sandbox: { id: "old" } });
      }
    } else {
      c.end(r.id, SandboxServiceCreateResponseSchema, { sandbox: { id: "new" } });
    }
  });
  const client = clientOf(peer);
  const [first, second] = await Promise.all([client.unary(getMethod, { id: "x" }), client.unary(createMethod, {})]);
  assert.equal(first.sandbox?.id, "old");
  assert.equal(second.sandbox?.id, "new");
  assert.equal(peer.connections.length, 2);
  await until(() => peer.connections[0]?.closed === true);
});

test("what the broker says before it closes is what the caller reads", async () => {
  const peer = new Peer((r, c) => {
    c.frame(r.id, { kind: FrameKind.GOAWAY, status: { code: 8, message: "too_many_pings" } });
    c.drop();
  });
  await assert.rejects(clientOf(peer).stream(runMethod, { command: { args: ["x"] } }).next(), /too_many_pings/);
});

test("a deadline travels with the call and is kept on this side too; CANCEL follows", async () => {
  const peer = new Peer(() => undefined);
  const began = performance.now();
  await assert.rejects(clientOf(peer).unary(createMethod, {}, { deadline: "80ms" }), errors.DeadlineExceededError);
  const took = performance.now() - began;
  assert.ok(took >= 75 && took < 1000, `${took} ms`);
  const call = peer.calls()[0];
  assert.ok(call !== undefined && call.frame.timeoutUs > 0n && call.frame.timeoutUs <= 80_000n);
  await until(() => peer.last().received.some((r) => r.frame.kind === FrameKind.CANCEL && r.id === call.id));
});

test("a signal that fires before, during or after a call does what it says", async () => {
  const peer = new Peer((r, c) => {
    if (isCall(r, "Info")) {
      c.end(r.id, InfoResponseSchema, { version: "1" });
    }
  });
  const client = clientOf(peer);
  const reason = new Error("enough");
  const early = client.unary(infoMethod, {}, { signal: AbortSignal.abort(reason) });
  await assert.rejects(early, (e) => e instanceof errors.CancelledError && e.cause === reason);
  assert.equal(peer.calls().length, 0);
  const controller = new AbortController();
  const during = client.unary(createMethod, {}, { signal: controller.signal });
  await until(() => peer.calls().length === 1);
  controller.abort(reason);
  await assert.rejects(during, (e) => e instanceof errors.CancelledError && e.cause === reason);
  await until(() => peer.last().received.some((r) => r.frame.kind === FrameKind.CANCEL));
  const late = new AbortController();
  assert.equal((await client.unary(infoMethod, {}, { signal: late.signal })).version, "1");
  late.abort();
});

test("the token goes with each call as a bearer", async () => {
  const peer = new Peer((r, c) => {
    c.end(r.id, InfoResponseSchema, {});
  });
  await clientOf(peer, { token: "s3cret" }).unary(infoMethod, {});
  assert.equal(metadata(peer.calls()[0] as Received, "authorization"), "Bearer s3cret");
});

test("a slow reader keeps the broker waiting: no credit is given before half the window was read", async () => {
  const peer = new Peer((r, c) => {
    for (let i = 0; r.frame.kind === FrameKind.CALL && i < r.frame.credit; i++) {
      c.data(r.id, RunResponseSchema, {});
    }
  });
  const stream = clientOf(peer).stream(runMethod, { command: { args: ["x"] } });
  const windows = (): Received[] => peer.last().received.filter((r) => r.frame.kind === FrameKind.WINDOW);
  for (let i = 0; i < 15; i++) {
    await stream.next();
  }
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(windows().length, 0);
  await stream.next();
  await until(() => windows().length === 1);
  assert.equal(windows()[0]?.frame.credit, 16);
  stream.cancel();
  assert.deepEqual(await stream.next(), { done: true, value: undefined });
});

test("leaving the loop over a stream cancels the call", async () => {
  const peer = new Peer((r, c) => {
    if (isCall(r, "Run")) {
      c.data(r.id, RunResponseSchema, {});
    }
  });
  for await (const message of clientOf(peer).stream(runMethod, { command: { args: ["x"] } })) {
    assert.equal(message.event, undefined);
    break;
  }
  await until(() => peer.last().received.some((r) => r.frame.kind === FrameKind.CANCEL));
});

test("the 129th stream waits for room instead of being refused, and its signal still works", async () => {
  const peer = new Peer((r, c) => {
    if (r.frame.kind === FrameKind.CANCEL) {
      c.frame(r.id, { kind: FrameKind.END, status: { code: 1 } });
    }
  });
  const client = clientOf(peer);
  const request = { command: { args: ["x"] } };
  const streams = Array.from({ length: 129 }, () => client.stream(runMethod, request));
  const given = new AbortController();
  setTimeout(() => {
    given.abort();
  }, 50);
  const late = client.stream(runMethod, request, { signal: given.signal });
  await assert.rejects(late.next(), errors.CancelledError);
  assert.equal(peer.calls().length, 128);
  streams[0]?.cancel();
  await until(() => peer.calls().length === 129);
});

test("a closed client takes no calls, and those under way end", async () => {
  const peer = new Peer(() => undefined);
  const client = clientOf(peer);
  const open = client.unary(createMethod, {});
  await until(() => peer.calls().length === 1);
  await client.close();
  await assert.rejects(open, errors.UnavailableError);
  await assert.rejects(client.unary(infoMethod, {}), /was closed/);
  assert.equal(peer.connections.length, 1);
});

test("a peer that is no broker is named as such", async () => {
  const peer = new Peer(() => undefined);
  const dial: typeof peer.dial = async (address, events, signal) => {
    const transport = await peer.dial(address, events, signal);
    queueMicrotask(() => {
      events.onData(new TextEncoder().encode("SSH-2.0-OpenSSH_9.2p1\r\n"));
    });
    return transport;
  };
  const client = new Client({ address: "tcp://127.0.0.1:1", dial });
  await assert.rejects(client.unary(infoMethod, {}), /not a Stockade broker/);
});

test("over a transport with messages of its own there is no handshake and no length", async () => {
  const received: Uint8Array[] = [];
  const client = new Client({
    address: "ws://example",
    dial: (_, events) =>
      Promise.resolve({
        framing: "message",
        write: (bytes) => {
          received.push(bytes);
          const frame = toBinary(InfoResponseSchema, create(InfoResponseSchema, { version: "9" }));
          const head = Uint8Array.of(0x80, 0, 0, 1, 0x08, 0x03, 0x1a, frame.length);
          queueMicrotask(() => {
            events.onData(new Uint8Array(Buffer.concat([head, frame])));
          });
        },
        close: () => undefined,
        keepAlive: () => undefined,
      }),
  });
  assert.equal((await client.unary(infoMethod, {})).version, "9");
  assert.equal(received.length, 1);
  assert.deepEqual([...(received[0] as Uint8Array).subarray(0, 6)], [0x80, 0, 0, 1, 0x08, 0x01]);
});
