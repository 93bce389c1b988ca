// SPDX-License-Identifier: Apache-2.0
// A hostile server on a real socket: floods of PINGs, unknown frames for ever, an END and then nothing, bytes one at a
// time, sizes that it does not keep, frames that nobody asked for. Each call ends, also without a deadline, and memory
// stays small.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { Client } from "../../src/client.js";
import { ProtocolError, UnavailableError } from "../../src/errors.js";
import { ProcessService } from "../../src/gen/stockade/v1/process_service_pb.js";
import { InfoResponseSchema, SystemService } from "../../src/gen/stockade/v1/system_service_pb.js";
import { FrameKind } from "../../src/gen/stockade/v1/wire_pb.js";
import { HELLO_REP, body, message } from "../peer.js";

const info = SystemService.method.info;
const run = ProcessService.method.run; // it has no deadline, and is never sent again
const command = { command: { args: ["true"] } };
const FIRST_ID = 1;
const GROWTH_MAX = 48 << 20;

/** Listens, greets, and calls `attack` when a connection's first call has come. */
async function hostile(attack: (socket: Socket) => void): Promise<{ server: Server; client: Client }> {
  const server = createServer((socket) => {
    let greeted = false;
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => {
      if (!greeted) {
        greeted = true;
        socket.write(HELLO_REP);
      }
      if (chunk.length > HELLO_REP.length) {
        socket.pause(); // reads nothing more
        attack(socket);
      }
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const client = new Client({ address: `tcp://127.0.0.1:${port}`, keepalive: 6, reconnectTimeout: 1 });
  return { server, client };
}

/** Writes the same bytes as fast as they are taken. */
function flood(socket: Socket, bytes: Uint8Array): void {
  const more = (): void => {
    while (!socket.destroyed && socket.write(bytes));
  };
  socket.on("drain", more);
  more();
}

function repeated(bytes: Uint8Array, n: number): Uint8Array {
  return Buffer.concat(Array.from({ length: n }, () => bytes));
}

/** How a call without a deadline ends, within 20 s. */
async function ends(attack: (socket: Socket) => void): Promise<Error> {
  const before = process.memoryUsage().rss;
  const { server, client } = await hostile(attack);
  try {
    const limit = new Promise<never>((_, reject) => {
      setTimeout(() => {
        reject(new Error("the call has not ended"));
      }, 20_000).unref();
    });
    const error = await Promise.race([client.stream(run, command).next(), limit]).then(
      () => new Error("the call succeeded"),
      (e: unknown) => e as Error,
    );
    const grown = process.memoryUsage().rss - before;
    assert.ok(grown < GROWTH_MAX, `memory grew by ${grown} bytes`);
    return error;
  } finally {
    await client.close();
    server.close();
  }
}

const ping = message(7, { kind: FrameKind.PING, payload: new Uint8Array(8) });
const unknown = body(FIRST_ID, Uint8Array.of(8, 99));

test("a flood of PINGs whose answers nobody reads ends the call and keeps no memory", async () => {
  const error = await ends((socket) => {
    flood(socket, repeated(ping, 4096));
  });
  assert.ok(error instanceof ProtocolError && error.message.includes("PINGs"), String(error));
});

test("floods of frames that break the protocol end the call", async () => {
  for (const bytes of [
    message(5, { kind: FrameKind.END }),
    message(FIRST_ID, { kind: FrameKind.DATA, payload: new Uint8Array(10) }),
    message(FIRST_ID, { kind: FrameKind.WINDOW, credit: 1 }),
    Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
    Uint8Array.of(0, 0, 0, 0, 0, 0x40, 0, 1),
    body(FIRST_ID, Uint8Array.of(0x0b, 0x0b, 0x0b)),
  ]) {
    const error = await ends((socket) => {
      flood(socket, repeated(bytes, 512));
    });
    assert.ok(error instanceof ProtocolError, String(error));
  }
});

test("a flood of GOAWAYs ends the call and keeps no memory", async () => {
  const goaway = message(0, { kind: FrameKind.GOAWAY, status: { code: 14, message: "x".repeat(4000) } });
  const error = await ends((socket) => {
    flood(socket, repeated(goaway, 64));
  });
  assert.ok(error instanceof UnavailableError, String(error));
});

// Unknown frames for ever, drips, a size that is not kept, and silence.
test("a peer that says nothing ends a call without a deadline", async () => {
  const size = Uint8Array.of(0, 0, 0, 0, 0, 0x3f, 0xff, 0xff);
  const drip = (socket: Socket, bytes: Uint8Array, n: number): void => {
    let at = 0;
    const timer = setInterval(() => {
      if (socket.destroyed) {
        clearInterval(timer);
      } else {
        socket.write(bytes.subarray(at, at + n));
        at = (at + n) % bytes.length;
      }
    }, 20);
  };
  const errors = await Promise.all([
    ends((socket) => {
      drip(socket, unknown, unknown.length);
    }),
    ends((socket) => {
      flood(socket, repeated(unknown, 16));
    }),
    ends((socket) => {
      drip(socket, repeated(unknown, 4), 1);
    }),
    ends((socket) => {
      socket.write(size);
    }),
    ends(() => undefined),
  ]);
  for (const error of errors) {
    assert.ok(error instanceof UnavailableError, String(error));
  }
});

test("after an END and then nothing, the next call without a deadline ends", async () => {
  const answer = message(FIRST_ID, {
    kind: FrameKind.END,
    payload: toBinary(InfoResponseSchema, create(InfoResponseSchema, { uptimeMs: 1n })),
  });
  const { server, client } = await hostile((socket) => socket.write(answer));
  try {
    assert.equal((await client.unary(info, {})).uptimeMs, 1n);
    const begun = performance.now();
    await assert.rejects(client.stream(run, command).next(), UnavailableError);
    assert.ok(performance.now() - begun < 25_000);
  } finally {
    await client.close();
    server.close();
  }
});
