// SPDX-License-Identifier: Apache-2.0
// How bytes get to the broker. The protocol above knows this interface only, so that another way (WebSocket, a pipe of
// a test) is one function: pass it as `dial`.
import { connect } from "node:net";
import type { Socket } from "node:net";
import { BrokerUnreachableError, Code, InvalidArgumentError } from "./errors.js";
import type { Framing } from "./frame.js";
import { isOfTls, Proof, unknownBroker } from "./tls.js";
import type { TlsOptions } from "./tls.js";

/** Callbacks of a transport. `onClose` is called once, and last. */
export interface TransportEvents {
  /** Bytes arrived; with the framing "message", exactly one message. */
  onData: (chunk: Uint8Array) => void;
  /** The connection is closed; `error` is the reason, unless the peer closed it normally. */
  onClose: (error: Error | undefined) => void;
}

/** An open connection. */
export interface Transport {
  /** How messages are separated on it. */
  readonly framing: Framing;
  /** Sends bytes, in order. Never blocks and never throws. */
  write(bytes: Uint8Array): void;
  /** Closes the connection now; onClose follows. */
  close(): void;
  /** True: an open connection keeps the program running. */
  keepAlive(on: boolean): void;
}

/**
 * Opens a connection to an address. Rejects with BrokerUnreachableError if nothing answers, or `signal` is aborted.
 */
export type Dial = (
  address: string,
  events: TransportEvents,
  signal: AbortSignal,
  tls?: TlsOptions,
) => Promise<Transport>;

/** Address of the broker. */
export type Address =
  | { framing: "ipc"; path: string }
  | { framing: "tcp"; host: string; port: number; tls: boolean };

/** Longest path of a unix socket (sockaddr_un of Linux), bytes. */
const PATH_BYTES_MAX = 107;
/** Milliseconds until the next attempt at a unix socket where so many connect that no more may wait (EAGAIN). */
const QUEUE_DELAY_MS = 10;

function bad(text: string, why: string): InvalidArgumentError {
  return new InvalidArgumentError(Code.INVALID_ARGUMENT, `address ${JSON.stringify(text)}: ${why}`, {
    reason: "ADDRESS_INVALID",
    info: { subject: "address", hint: "use ipc:///path, tcp://host:port or tls+tcp://host:port" },
  });
}

/**
 * Reads "ipc:///path", "unix:/path", "tcp://host:port" ("tcp://[::1]:port" for IPv6) or "tls+tcp://host:port". Throws
 * InvalidArgumentError for anything else.
 */
export function parseAddress(text: string): Address {
  const unix = /^(?:ipc:\/\/|unix:(?:\/\/)?)(.*)$/s.exec(text);
  if (unix !== null) {
    const path = unix[1] as string;
    if (!path.startsWith("/") || path.includes("\0")) {
      throw bad(text, "the path of a socket starts with / and holds no NUL");
    }
    if (Buffer.byteLength(path) > PATH_BYTES_MAX) {
      throw bad(text, `the path is longer than ${PATH_BYTES_MAX} bytes`);
    }
    return { framing: "ipc", path };
  }
  const tcp = /^(tls\+)?tcp:\/\/(?:\[([0-9a-fA-F:.]+)\]|([^\s:/[\]@]+)):([0-9]{1,5})$/.exec(text);
  if (tcp === null) {
    throw bad(text, "not one that this client knows");
  }
  const port = Number(tcp[4]);
  if (port < 1 || port > 65535) {
    throw bad(text, "ports go from 1 to 65535");
  }
  return { framing: "tcp", host: (tcp[2] ?? tcp[3]) as string, port, tls: tcp[1] !== undefined };
}

const hints: Readonly<Record<string, string>> = {
  ENOENT: "is stockaded running? The socket does not exist",
  ECONNREFUSED: "is stockaded running? Nothing listens there",
  EACCES: "this user may not open the socket: add it to the socket's group",
};

/** The error for a connection that was not made. */
function cannotConnect(address: string, e: NodeJS.ErrnoException, hint = hints[e.code ?? ""]): BrokerUnreachableError {
  const text = `connect to ${address}: ${e.message}${hint === undefined ? "" : ` (${hint})`}`;
  return new BrokerUnreachableError(text, {
    info: { subject: address, ...(hint === undefined ? {} : { hint }) },
    cause: e,
  });
}

/** The error for a peer that closed the connection before it greeted. */
export function rejected(address: string, e: Error): BrokerUnreachableError {
  const tls = address.startsWith("tcp:") ? "speak TLS there (tls+tcp://), " : "";
  return cannotConnect(address, e, `it may ${tls}be stopping, or have too many connections open`);
}

// The error for a peer with which TLS did not begin.
function withoutTls(address: string, e: NodeJS.ErrnoException): Error {
  if (e.code === "ECONNRESET" || /^ERR_SSL_(?:WRONG_VERSION|PACKET_LENGTH|UNEXPECTED_EOF)/.test(e.code ?? "")) {
    const hint = "it may speak no TLS there (tcp://), be stopping, or have too many connections open";
    return cannotConnect(address, e, hint);
  }
  return isOfTls(e) ? unknownBroker(e) : cannotConnect(address, e);
}

class SocketTransport implements Transport {
  readonly framing: Framing;
  readonly #socket: Socket;
  #corked = false;

  constructor(framing: Framing, socket: Socket) {
    this.framing = framing;
    this.#socket = socket;
  }

  write(bytes: Uint8Array): void {
    // What is written within one turn of the event loop leaves in one system call.
    if (!this.#corked) {
      this.#corked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#corked = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(bytes);
  }

  close(): void {
    this.#socket.destroy();
  }

  keepAlive(on: boolean): void {
    if (on) {
      this.#socket.ref();
    } else {
      this.#socket.unref();
    }
  }
}

function listen(socket: Socket, events: TransportEvents): void {
  let error: Error | undefined;
  socket.on("data", events.onData);
  socket.on("error", (e) => (error = e));
  socket.on("end", () => socket.destroy());
  socket.once("close", () => {
    events.onClose(error);
  });
}

/** The default: unix sockets, TCP and TLS, through node:net and node:tls. */
export const dialSocket: Dial = async (address, events, signal, tls) => {
  const where = parseAddress(address);
  const proof = where.framing === "tcp" && where.tls ? new Proof(tls ?? {}, where.host) : undefined;
  for (;;) {
    try {
      return await dialOnce(address, where, proof, events, signal);
    } catch (e) {
      if (!(e instanceof BrokerUnreachableError && (e.cause as NodeJS.ErrnoException).code === "EAGAIN")) {
        throw e;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, QUEUE_DELAY_MS));
  }
};

function dialOnce(
  address: string,
  where: Address,
  proof: Proof | undefined,
  events: TransportEvents,
  signal: AbortSignal,
): Promise<Transport> {
  return new Promise((resolve, reject) => {
    const secure = where.framing === "ipc" ? undefined : proof?.connect(where.host, where.port);
    const plain = where.framing === "ipc" ? { path: where.path } : { host: where.host, port: where.port };
    const socket = secure ?? connect(plain);
    const giveUp = (): void => {
      socket.destroy();
      const why = new Error("gave up waiting", { cause: signal.reason });
      const silent = secure?.connecting === false ? "it may speak no TLS there (tcp://), or be busy" : undefined;
      reject(cannotConnect(address, why, silent));
    };
    const onError = (e: Error): void => {
      signal.removeEventListener("abort", giveUp);
      reject(proof === undefined ? cannotConnect(address, e) : withoutTls(address, e));
    };
    socket.once("error", onError);
    socket.once(secure === undefined ? "connect" : "secureConnect", () => {
      signal.removeEventListener("abort", giveUp);
      try {
        if (secure !== undefined) {
          proof?.check(secure);
        }
      } catch (e) {
        socket.destroy();
        reject(e instanceof Error ? e : new Error(String(e)));
        return;
      }
      socket.off("error", onError);
      socket.setNoDelay(true);
      socket.setKeepAlive(true, 30_000);
      listen(socket, events);
      resolve(new SocketTransport(where.framing, socket));
    });
    if (signal.aborted) {
      giveUp();
    } else {
      signal.addEventListener("abort", giveUp, { once: true });
    }
  });
}
