// SPDX-License-Identifier: Apache-2.0
// The other end of a connection, for tests that need a broker that misbehaves: it speaks the wire through the generated
// messages, not through the code under test.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { FrameKind, FrameSchema } from "../src/gen/stockade/v1/wire_pb.js";
import type { Frame } from "../src/gen/stockade/v1/wire_pb.js";
import type { Dial, TransportEvents } from "../src/transport.js";

export const HELLO_REP = Uint8Array.of(0, 0x53, 0x50, 0, 0, 0x31, 0, 0);

/** A frame in its SP message, for the framing of tcp. */
export function message(id: number, frame: MessageInitShape<typeof FrameSchema>): Uint8Array {
  return body(id, toBinary(FrameSchema, create(FrameSchema, frame)));
}

export function body(id: number, bytes: Uint8Array): Uint8Array {
  const out = new Uint8Array(12 + bytes.length);
  const view = new DataView(out.buffer);
  view.setBigUint64(0, BigInt(4 + bytes.length));
  view.setUint32(8, (0x80000000 | id) >>> 0);
  out.set(bytes, 12);
  return out;
}

export interface Received {
  id: number;
  frame: Frame;
}

/** One connection as the peer sees it. */
export class PeerConnection {
  readonly received: Received[] = [];
  closed = false;
  #events: TransportEvents;
  #bytes = new Uint8Array(0);
  #hello = false;
  #onFrame: (r: Received, c: PeerConnection) => void;

  constructor(events: TransportEvents, onFrame: (r: Received, c: PeerConnection) => void) {
    this.#events = events;
    this.#onFrame = onFrame;
  }

  send(bytes: Uint8Array): void {
    if (!this.closed) {
      this.#events.onData(bytes);
    }
  }

  frame(id: number, frame: MessageInitShape<typeof FrameSchema>): void {
    this.send(message(id, frame));
  }

  data<T extends DescMessage>(id: number, type: T, value: MessageInitShape<T>): void {
    this.frame(id, { kind: FrameKind.DATA, payload: toBinary(type, create(type, value)) });
  }

  end<T extends DescMessage>(id: number, type: T, value: MessageInitShape<T>): void {
    this.frame(id, { kind: FrameKind.END, payload: toBinary(type, create(type, value)) });
  }

  drop(error?: Error): void {
    if (!this.closed) {
      this.closed = true;
      this.#events.onClose(error);
    }
  }

  calls(): Received[] {
    return this.received.filter((r) => r.frame.kind === FrameKind.CALL);
  }

  take(chunk: Uint8Array): void {
    this.#bytes = new Uint8Array(Buffer.concat([this.#bytes, chunk]));
    if (!this.#hello && this.#bytes.length >= 8) {
      this.#hello = true;
      this.#bytes = this.#bytes.subarray(8);
      queueMicrotask(() => {
        this.send(HELLO_REP);
      });
    }
    while (this.#hello && this.#bytes.length >= 8) {
      const view = new DataView(this.#bytes.buffer, this.#bytes.byteOffset);
      const length = Number(view.getBigUint64(0));
      if (this.#bytes.length < 8 + length) {
        return;
      }
      const id = view.getUint32(8) - 0x80000000;
      const frame = fromBinary(FrameSchema, this.#bytes.subarray(12, 8 + length));
      this.#bytes = this.#bytes.subarray(8 + length);
      const received = { id, frame };
      this.received.push(received);
      queueMicrotask(() => {
        this.#onFrame(received, this);
      });
    }
  }
}

/** Dials to a peer that lives in this program. */
export class Peer {
  readonly connections: PeerConnection[] = [];
  refuse = false;
  readonly dial: Dial = (_address, events) => {
    if (this.refuse) {
      return Promise.reject(new Error("nobody listens"));
    }
    const connection = new PeerConnection(events, (r, c) => {
      this.onFrame(r, c);
    });
    this.connections.push(connection);
    return Promise.resolve({
      framing: "tcp" as const,
      write: (bytes: Uint8Array) => {
        connection.take(bytes);
      },
      close: () => {
        queueMicrotask(() => {
          connection.drop();
        });
      },
      keepAlive: () => undefined,
    });
  };

  constructor(public onFrame: (r: Received, c: PeerConnection) => void) {}

  /** Calls of all connections, in order. */
  calls(): Received[] {
    return this.connections.flatMap((c) => c.calls());
  }

  last(): PeerConnection {
    const connection = this.connections.at(-1);
    if (connection === undefined) {
      throw new Error("nobody connected");
    }
    return connection;
  }
}

export function read<T extends DescMessage>(type: T, r: Received): MessageShape<T> {
  return fromBinary(type, r.frame.payload);
}

export function metadata(r: Received, key: string): string | undefined {
  return r.frame.metadata.find((m) => m.key === key)?.value;
}

export async function until(what: () => boolean, ms = 10_000): Promise<void> {
  const end = performance.now() + ms;
  while (!what()) {
    if (performance.now() > end) {
      throw new Error(`did not come true within ${ms} ms: ${what.toString()}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
