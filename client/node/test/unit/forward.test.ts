// SPDX-License-Identifier: Apache-2.0
// Ports that lead into a sandbox: what is refused here, and a broker that lies.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { test } from "node:test";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import {
  SandboxServiceCreateResponseSchema,
  SandboxServiceForwardInputRequestSchema,
  SandboxServiceForwardInputResponseSchema,
  SandboxServiceForwardResponseSchema,
  SandboxServiceGetResponseSchema,
} from "../../src/gen/stockade/v1/sandbox_service_pb.js";
import { FrameKind } from "../../src/gen/stockade/v1/wire_pb.js";
import { Sandbox } from "../../src/sandbox.js";
import { Peer, read, until } from "../peer.js";
import type { PeerConnection, Received } from "../peer.js";

const SID = "f".repeat(32);
const CONNECTION = "a".repeat(32);
const sandbox = { id: SID, network: { inbound: [{ first: 80 }, { first: 90, last: 99 }] } };

type Answer = (c: PeerConnection, id: number, method: string, r: Received) => void;

/** A sandbox at a broker that answers Create and Get; `answer` plays the rest. */
async function made(answer: Answer): Promise<{ sbx: Sandbox; client: Client; peer: Peer }> {
  const peer = new Peer((received, c) => {
    const { id, frame } = received;
    if (frame.kind !== FrameKind.CALL) {
      return;
    }
    const name = frame.method.slice(frame.method.lastIndexOf("/") + 1);
    if (name === "Create") {
      c.end(id, SandboxServiceCreateResponseSchema, { sandbox });
    } else if (name === "Get") {
      c.end(id, SandboxServiceGetResponseSchema, { sandbox });
    } else {
      answer(c, id, name, received);
    }
  });
  const client = new Client({ address: "tcp://127.0.0.1:1", dial: peer.dial, reconnectTimeout: 1 });
  return { sbx: await Sandbox.create({ client }), client, peer };
}

function refuse(c: PeerConnection, id: number, code: number, message: string): void {
  c.frame(id, { kind: FrameKind.END, status: { code, message } });
}

/** Connects, and gives what comes until the end. */
async function dial(port: number, say = ""): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port });
  socket.end(say);
  return said(socket);
}

async function said(socket: Socket): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of socket) {
    pieces.push(piece as Uint8Array);
  }
  return Buffer.concat(pieces).toString();
}

test("a host that others reach is refused, and so is a port that is none", async () => {
  const { sbx, client } = await made(() => assert.fail("nothing of this is asked"));
  for (const host of ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1", "example.com", ""]) {
    await assert.rejects(sbx.forward(80, { host }), errors.InvalidArgumentError, host);
  }
  for (const port of [0, -1, 65536, 1.5, NaN]) {
    await assert.rejects(sbx.forward(port), errors.InvalidArgumentError, String(port));
  }
  await client.close();
});

test("a port that the policy lacks is refused in the broker's words", async () => {
  const { sbx, client } = await made((c, id) => {
    refuse(c, id, 7, "does not allow connections to port 89");
  });
  await assert.rejects(sbx.forward(89), (e) => {
    return e instanceof errors.PermissionDeniedError && e.message.includes("to port 89");
  });
  await client.close();
});

test("a local port that is taken is refused", async () => {
  const { sbx, client } = await made(() => undefined);
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  await assert.rejects(sbx.forward(80, { localPort: (other.address() as AddressInfo).port }), { code: "EADDRINUSE" });
  other.close();
  await client.close();
});

test("a connection without an id is told, and who connected sees its end", async () => {
  const told: unknown[] = [];
  const { sbx, client } = await made((c, id) => {
    c.data(id, SandboxServiceForwardResponseSchema, { data: Uint8Array.of(1) });
  });
  const forward = await sbx.forward(95, { onError: (e) => told.push(e) });
  assert.equal(await dial(forward.port), "");
  assert.ok(told.length === 1 && told[0] instanceof errors.ProtocolError, String(told));
  await forward.close();
  await client.close();
});

test("bytes wait while the broker's queue is full, and go in order", async () => {
  const got: string[] = [];
  let stream = 0;
  const { sbx, client } = await made((c, id, method, received) => {
    if (method === "Forward") {
      stream = id;
      c.data(id, SandboxServiceForwardResponseSchema, { connectionId: CONNECTION });
    } else if (method === "ForwardInput") {
      got.push(Buffer.from(read(SandboxServiceForwardInputRequestSchema, received).data).toString());
      if (got.length === 1) {
        refuse(c, id, 8, "full");
      } else {
        c.end(id, SandboxServiceForwardInputResponseSchema, {});
      }
    } else {
      c.data(stream, SandboxServiceForwardResponseSchema, { data: Buffer.from("thanks") });
      c.frame(stream, { kind: FrameKind.END });
    }
  });
  await using forward = await sbx.forward(80);
  assert.equal(await dial(forward.port, "please"), "thanks");
  assert.deepEqual(got, ["please", "please"]);
  await client.close();
});

test("closing ends what is open, and nothing more is taken", async () => {
  const { sbx, client, peer } = await made((c, id) => {
    c.data(id, SandboxServiceForwardResponseSchema, { connectionId: CONNECTION });
  });
  const forward = await sbx.forward(80);
  const socket = connect({ host: "127.0.0.1", port: forward.port });
  const end = said(socket);
  const frames = (): { frame: { kind: FrameKind } }[] => peer.connections.flatMap((c) => c.received);
  await until(() => peer.connections.some((c) => c.calls().some((r) => r.frame.method.endsWith("/Forward"))));
  await forward.close();
  assert.equal(await end, "");
  await until(() => frames().some((r) => r.frame.kind === FrameKind.CANCEL));
  await assert.rejects(dial(forward.port), { code: "ECONNREFUSED" });
  await client.close();
});
