// SPDX-License-Identifier: Apache-2.0
// Calls on a connection that is made when it is needed, and made again when it was lost.
//
// Theory of operation. A call that is lost with its connection is sent again only where that cannot execute anything a
// second time:
//
//   it never left, or the broker's GOAWAY says that it was not begun       sent again
//   the method is idempotent by the schema                                 sent again
//   a unary call with an idempotency key, and the broker is still the      sent again with the same key: the broker
//   process that took it (it is asked how long it runs)                    answers with what the first execution gave
//   anything else                                                          ConnectionLostError
//
// A stream is never sent again after its first message; its reader knows its position (see Process).
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { CallScope, metadataOf, pathOf, renewed, rulesOf } from "./call.js";
import type { CallOptions } from "./call.js";
import { Connection } from "./connection.js";
import type { Lost } from "./connection.js";
import { Code, ProtocolError, UnavailableError } from "./errors.js";
import type { StockadeError } from "./errors.js";
import { checkFields, textOf } from "./fields.js";
import { ProcessService } from "./gen/stockade/v1/process_service_pb.js";
import { SystemService } from "./gen/stockade/v1/system_service_pb.js";
import { checkWire } from "./scan.js";
import type { CallInit } from "./session.js";
import { connectionLost, errorFromStatus } from "./status.js";
import type { WireStatus } from "./status.js";
import { MessageStream } from "./stream.js";
import type { TlsOptions } from "./tls.js";
import { tokenIn } from "./token_file.js";
import { dialSocket, parseAddress } from "./transport.js";
import type { Dial } from "./transport.js";
import { badArgument, knownOptions, parseDuration } from "./units.js";
import type { Duration } from "./units.js";

/** Default address of the broker. */
export const DEFAULT_ADDRESS = "ipc:///run/stockade/stockade.sock";

/** Options of a client. */
export interface ClientOptions {
  /** "ipc:///path", "unix:/path", "tcp://host:port" or "tls+tcp://host:port". Default: STOCKADE_ADDRESS, or
   * `DEFAULT_ADDRESS`. */
  address?: string;
  /** Sent with each call as "authorization: Bearer TOKEN". Default: STOCKADE_TOKEN, or none. */
  token?: string;
  /**
   * A file whose first line is the token, in place of `token`. Each call reads it, so that a token that is replaced
   * (renamed over it) counts at once; a call rejects with InvalidArgumentError if it cannot be read.
   */
  tokenFile?: string;
  /** Timeout of one attempt to connect, including the greeting; seconds or text. Default: 5. */
  connectTimeout?: Duration;
  /** How long the client tries to reconnect after an established connection was lost; seconds or text. Default: 10. 0:
   * one attempt. */
  reconnectTimeout?: Duration;
  /**
   * Time without a frame from the broker after which the client sends a PING; seconds or text. Default: 20; at least 6.
   */
  keepalive?: Duration;
  /** For "tls+tcp" addresses. Default: what the variables of `TlsOptions` say. */
  tls?: TlsOptions;
  /** Another transport than unix sockets, TCP and TLS. */
  dial?: Dial;
}

const CLIENT_OPTIONS = {
  address: true,
  token: true,
  tokenFile: true,
  connectTimeout: true,
  reconnectTimeout: true,
  keepalive: true,
  dial: true,
  tls: true,
} as const;

/** A call is sent at most this often, whatever became of it. */
const ATTEMPTS_MAX = 6;
const BACKOFF_FIRST_MS = 20;
const BACKOFF_MAX_MS = 1000;

type Outcome =
  | { payload: Uint8Array; status: WireStatus | undefined }
  | { lost: Lost; error: Error };

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Milliseconds to wait before a call goes out again that the broker refused because it takes none at present;
 * undefined: it does not.
 */
function askAgainMs(error: StockadeError, giveUp: number): number | undefined {
  const ms = error instanceof UnavailableError && error.retryAfter !== undefined ? error.retryAfter * 1000 : undefined;
  return ms === undefined || performance.now() + ms > giveUp ? undefined : Math.max(ms, BACKOFF_FIRST_MS);
}

function checkToken({ address, token, tokenFile }: ClientOptions): void {
  for (const [name, value] of Object.entries({ address, token, tokenFile })) {
    if (value !== undefined && textOf(value, name) === "") {
      throw badArgument(name, "must not be empty; omit it for the default");
    }
  }
  if (token !== undefined && !/^[\x20-\x7e]+$/.test(token)) {
    throw badArgument("token", "it has characters that no token has");
  }
}

/** Serialized request; InvalidArgumentError where the values do not fit their types. */
function serialize<I extends DescMessage>(type: I, init: MessageInitShape<I>): Uint8Array {
  checkFields(type, init);
  try {
    return toBinary(type, create(type, init));
  } catch (e) {
    throw badArgument(type.typeName, e instanceof Error ? e.message : String(e));
  }
}

/** A message that came from the broker. ProtocolError: it is not one of this type. */
export function deserialize<O extends DescMessage>(type: O, bytes: Uint8Array): MessageShape<O> {
  checkWire(type, bytes);
  try {
    return fromBinary(type, bytes, { readUnknownFields: false });
  } catch (e) {
    throw new ProtocolError(`${type.typeName}: ${e instanceof Error ? e.message : String(e)}`, { cause: e });
  }
}

/**
 * A client of one broker. The first call connects. All calls share one connection and run concurrently. An idle client
 * does not keep the program running.
 */
export class Client implements AsyncDisposable {
  /** The address in use. */
  readonly address: string;
  readonly #token: string | undefined;
  readonly #tokenFile: string | undefined;
  readonly #dial: Dial;
  readonly #connectMs: number;
  readonly #reconnectMs: number;
  readonly #keepaliveMs: number;
  readonly #connections = new Set<Connection>();
  #current: Connection | undefined;
  #connecting: Promise<Connection> | undefined;
  #wasConnected = false;
  #closed = false;

  /** Throws InvalidArgumentError for a wrong option. Does not connect yet. */
  constructor(options: ClientOptions = {}) {
    knownOptions(options, CLIENT_OPTIONS);
    this.address = options.address ?? (process.env["STOCKADE_ADDRESS"] || DEFAULT_ADDRESS);
    this.#tokenFile = options.tokenFile;
    checkToken(options);
    this.#token = options.token ?? (options.tokenFile === undefined ? process.env["STOCKADE_TOKEN"] : undefined);
    if (options.tokenFile !== undefined) {
      if (options.token !== undefined) {
        throw badArgument("tokenFile", "excludes token");
      }
      tokenIn(options.tokenFile);
    }
    const { tls } = options;
    this.#dial = options.dial ?? ((address, events, signal) => dialSocket(address, events, signal, tls));
    this.#connectMs = parseDuration(options.connectTimeout ?? 5, "connectTimeout");
    this.#reconnectMs = parseDuration(options.reconnectTimeout ?? 10, "reconnectTimeout");
    this.#keepaliveMs = parseDuration(options.keepalive ?? 20, "keepalive");
    if (options.dial === undefined) {
      parseAddress(this.address);
    }
  }

  /**
   * Makes a unary call of any method of the schema. Rejects with the StockadeError of the call's status, or
   * BrokerUnreachableError if no broker answers.
   */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const payload = serialize(method.input, request);
    const metadata = metadataOf(method, this.#credential(), options);
    const scope = new CallScope(method, options);
    try {
      const answer = await this.#send(method, { payload, metadata }, scope, options);
      return this.#decode(method.output, answer.payload, answer.connection);
    } finally {
      scope.done();
    }
  }

  /**
   * Makes a server-streaming call of any method of the schema. If the call's status is not OK, the stream ends with its
   * StockadeError. Messages wait in the broker until they are read.
   */
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): MessageStream<MessageShape<O>> {
    const payload = serialize(method.input, request);
    const metadata = metadataOf(method, this.#credential(), options);
    const giveUp = performance.now() + this.#reconnectMs;
    return new MessageStream({
      path: pathOf(method),
      idempotent: rulesOf(method).idempotent,
      payload,
      metadata,
      scope: new CallScope(method, options),
      renewed: (pairs) => renewed(pairs, options),
      askAgain: (error) => askAgainMs(error, giveUp),
      connection: (scope) => this.#usable(scope),
      decode: (bytes, connection) => this.#decode(method.output, bytes, connection),
    });
  }

  /** @internal close() was called. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Closes the connection. Never rejects. Calls in progress and later calls reject with UnavailableError. */
  close(): Promise<void> {
    this.#closed = true;
    for (const connection of this.#connections) {
      connection.close();
    }
    this.#connections.clear();
    return Promise.resolve();
  }

  /** close(), for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #credential(): string | undefined {
    return this.#tokenFile === undefined ? this.#token : tokenIn(this.#tokenFile);
  }

  #decode<O extends DescMessage>(type: O, bytes: Uint8Array, connection: Connection): MessageShape<O> {
    try {
      return deserialize(type, bytes);
    } catch (e) {
      connection.close(e instanceof Error ? e : undefined);
      throw e;
    }
  }

  async #send(
    method: DescMethodUnary,
    call: Pick<CallInit, "payload" | "metadata">,
    scope: CallScope,
    options: CallOptions,
  ): Promise<{ payload: Uint8Array; connection: Connection }> {
    const path = pathOf(method);
    const giveUp = performance.now() + this.#reconnectMs;
    let { metadata } = call;
    const { idempotent } = rulesOf(method);
    let sentAt: number | undefined;
    let doubt: StockadeError | undefined; // a change that may have been executed
    for (let attempt = 1; ; attempt++) {
      const connection = await this.#usable(scope).catch((e: unknown) => {
        throw doubt !== undefined && e instanceof UnavailableError ? doubt : e;
      });
      if (sentAt !== undefined && !idempotent && !(await this.#isSameBroker(connection, sentAt, scope))) {
        throw connectionLost(path, new Error("the broker was started anew since"));
      }
      const began = performance.now();
      const outcome = await this.#once(connection, { ...call, metadata, method: path }, scope);
      if (!("lost" in outcome)) {
        if (outcome.status !== undefined && outcome.status.code !== Code.OK) {
          const error = errorFromStatus(outcome.status, path);
          // The batch ends with a broker that drains, and its results come meanwhile.
          const ends = method === ProcessService.method.addToBatch && error.reason === "DRAINING";
          const wait = ends ? undefined : askAgainMs(error, giveUp);
          if (wait === undefined) {
            throw doubt !== undefined && error instanceof UnavailableError ? doubt : error;
          }
          metadata = doubt === undefined ? renewed(metadata, options) : metadata;
          attempt--;
          await scope.race(sleep(wait));
          continue;
        }
        return { payload: outcome.payload, connection };
      }
      if (outcome.lost === "sent") {
        sentAt ??= began;
        doubt = idempotent ? undefined : connectionLost(path, outcome.error);
      }
      if (outcome.error instanceof RangeError) {
        throw badArgument("request", outcome.error.message);
      }
      if (attempt === ATTEMPTS_MAX || outcome.error instanceof ProtocolError || this.#closed) {
        throw connectionLost(path, outcome.error);
      }
    }
  }

  #once(
    connection: Connection,
    call: Pick<CallInit, "method" | "payload" | "metadata">,
    scope: CallScope,
  ): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      let undo = (): void => undefined;
      const finish = (outcome: Outcome): void => {
        undo();
        resolve(outcome);
      };
      const init = { ...call, streaming: false, credit: 0, timeoutMs: () => scope.remainingMs() };
      const ticket = connection.call(init, {
        onData: () => undefined,
        onEnd: (payload, status) => {
          finish({ payload, status });
        },
        onLost: (lost, error) => {
          finish({ lost, error });
        },
      });
      if (ticket === undefined) {
        finish({ lost: "unsent", error: new Error("the connection takes no calls") });
        return;
      }
      undo = scope.onStop((why) => {
        connection.cancel(ticket);
        reject(why);
      });
    });
  }

  /** @internal True when the broker that answers now was there at `since` (of performance.now()) already. */
  async isSameBroker(since: number): Promise<boolean> {
    const scope = new CallScope(SystemService.method.info, {});
    try {
      return await this.#isSameBroker(await this.#usable(scope), since, scope);
    } finally {
      scope.done();
    }
  }

  // True when the broker behind the connection is the process that was there at `since` already.
  async #isSameBroker(connection: Connection, since: number, scope: CallScope): Promise<boolean> {
    const path = pathOf(SystemService.method.info);
    const metadata = metadataOf(SystemService.method.info, this.#credential(), {});
    const payload = new Uint8Array(0);
    const outcome = await this.#once(connection, { method: path, payload, metadata }, scope);
    if ("lost" in outcome || (outcome.status !== undefined && outcome.status.code !== Code.OK)) {
      return false;
    }
    const info = this.#decode(SystemService.method.info.output, outcome.payload, connection);
    return Number(info.uptimeMs) > performance.now() - since;
  }

  // A connection that takes calls.
  async #usable(scope: CallScope): Promise<Connection> {
    if (scope.stopped !== undefined) {
      throw scope.stopped;
    }
    return this.#current?.usable === true ? this.#current : scope.race(this.#connect());
  }

  #connect(): Promise<Connection> {
    this.#connecting ??= this.#reconnect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  async #reconnect(): Promise<Connection> {
    const giveUp = performance.now() + (this.#wasConnected ? this.#reconnectMs : 0);
    for (let backoff = BACKOFF_FIRST_MS; ; backoff = Math.min(backoff * 2, BACKOFF_MAX_MS)) {
      if (this.#closed) {
        throw new UnavailableError(Code.UNAVAILABLE, "this client was closed", { reason: "CLIENT_CLOSED" });
      }
      try {
        return await this.#openOne();
      } catch (e) {
        if (e instanceof ProtocolError || performance.now() + backoff > giveUp) {
          throw e;
        }
      }
      await sleep(backoff * (0.5 + Math.random() / 2));
    }
  }

  async #openOne(): Promise<Connection> {
    const connection = await Connection.open({
      address: this.address,
      dial: this.#dial,
      keepaliveMs: this.#keepaliveMs,
      connectMs: this.#connectMs,
      onClose: (gone) => this.#connections.delete(gone),
    });
    if (this.#closed) {
      connection.close();
    }
    this.#wasConnected = true;
    this.#connections.add(connection);
    this.#current = connection;
    return connection;
  }
}
