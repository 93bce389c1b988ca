// SPDX-License-Identifier: Apache-2.0
// A port of this machine's loopback, forwarded to a sandbox.
//
// Bytes from the sandbox arrive as a stream, bytes to it are sent as calls: two independent directions; each ends
// the other.
import { once } from "node:events";
import { BlockList, createServer, isIP } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import type { Client } from "./client.js";
import { FailedPreconditionError, NotFoundError, ProtocolError, StockadeError } from "./errors.js";
import { SandboxService } from "./gen/stockade/v1/sandbox_service_pb.js";
import { untilTaken } from "./queue.js";
import { badArgument } from "./units.js";

/** Options of `Sandbox.forward`. */
export interface ForwardOptions {
  /** Port of this machine. Default: 0, any free port (see `Forward.port`). */
  localPort?: number;
  /** Another loopback address, such as "::1". Default: "127.0.0.1". */
  host?: string;
  /** Called for each connection that fails, for example because nothing listens in the sandbox; the local peer sees
   * only that the connection is closed. */
  onError?: (error: StockadeError) => unknown;
}

const PIECE_BYTES = 32 * 1024;
const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8);
loopback.addAddress("::1", "ipv6");

function checkHost(host: string): string {
  const address = host === "localhost" ? "127.0.0.1" : host;
  const family = isIP(address);
  if (family === 0 || !loopback.check(address, family === 6 ? "ipv6" : "ipv4")) {
    throw badArgument("host", `${JSON.stringify(host)}: not a loopback address`);
  }
  return address;
}

/**
 * A port of this machine that is forwarded to a port of a sandbox. `Sandbox.forward` returns it. Closing it closes
 * every connection; with `await using` it is closed at the end of the block.
 */
export class Forward implements AsyncDisposable {
  /** The local address. */
  readonly host: string;
  /** The local port. */
  readonly port: number;
  readonly #server: Server;
  readonly #open = new Map<Socket, Promise<void>>();

  private constructor(server: Server) {
    const at = server.address() as AddressInfo;
    this.host = at.address;
    this.port = at.port;
    this.#server = server;
  }

  /** @internal Rejects with the system's error where the port is taken. */
  static async listen(client: Client, id: string, port: number, options: ForwardOptions): Promise<Forward> {
    const server = createServer({ allowHalfOpen: true });
    server.listen(options.localPort ?? 0, checkHost(options.host ?? "127.0.0.1"));
    await once(server, "listening");
    const made = new Forward(server);
    server.on("connection", (socket) => {
      const carried = made.#carry(client, { id, port }, socket, options);
      made.#open.set(socket, carried);
      void carried.finally(() => made.#open.delete(socket));
    });
    return made;
  }

  /** Stops listening and closes every connection. Never rejects. */
  async close(): Promise<void> {
    this.#server.close();
    const carried = [...this.#open.values()];
    for (const socket of this.#open.keys()) {
      socket.destroy();
    }
    await Promise.all(carried);
  }

  /** close(), for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #carry(
    client: Client,
    to: { id: string; port: number },
    socket: Socket,
    options: ForwardOptions,
  ): Promise<void> {
    const stream = client.stream(SandboxService.method.forward, to);
    socket.on("close", () => {
      stream.cancel();
    });
    socket.on("error", () => undefined); // the local peer has disconnected: "close" comes next
    try {
      const first = await stream.next();
      if (first.done === true || first.value.connectionId === "") {
        throw new ProtocolError("the broker opened a connection without saying which");
      }
      const up = sendUp(client, first.value.connectionId, socket);
      await Promise.race([sendDown(stream, socket), up.then(() => new Promise<never>(() => undefined))]);
      socket.end();
      await happens(socket, "finish");
    } catch (e) {
      if (e instanceof StockadeError && !socket.destroyed) {
        options.onError?.(e);
      }
    } finally {
      stream.cancel();
      socket.destroy();
    }
  }
}

// Comes when the event does, or the socket is closed.
function happens(socket: Socket, event: "drain" | "finish"): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      socket.off(event, done);
      socket.off("close", done);
      resolve();
    };
    if (socket.destroyed) {
      resolve();
    } else {
      socket.on(event, done);
      socket.on("close", done);
    }
  });
}

async function sendDown(stream: AsyncIterable<{ data: Uint8Array }>, socket: Socket): Promise<void> {
  for await (const { data } of stream) {
    if (!socket.write(data)) {
      await happens(socket, "drain");
    }
  }
}

// Ends at the end of the local input, or of the connection.
async function sendUp(client: Client, connectionId: string, socket: Socket): Promise<void> {
  try {
    for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
      const bytes = chunk as Uint8Array;
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
        const data = bytes.subarray(at, at + PIECE_BYTES);
        await untilTaken(() => client.unary(SandboxService.method.forwardInput, { connectionId, data }));
      }
    }
    await client.unary(SandboxService.method.forwardClose, { connectionId });
  } catch (e) {
    if (!(e instanceof NotFoundError || e instanceof FailedPreconditionError)) {
      throw e;
    }
  }
}
