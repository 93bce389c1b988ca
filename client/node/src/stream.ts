// SPDX-License-Identifier: Apache-2.0
// The messages of one server-streaming call, as an async iterator.
//
// Credits make the broker wait for the reader: it may send `window` messages ahead, and gets new credit when half of
// them were read. So a slow reader costs this program at most `window` messages of 64 KiB.
import type { CallScope } from "./call.js";
import type { Connection, Ticket } from "./connection.js";
import { Code, ProtocolError } from "./errors.js";
import type { StockadeError } from "./errors.js";
import { CREDIT_DEFAULT } from "./session.js";
import { connectionLost, errorFromStatus } from "./status.js";
import type { WireStatus } from "./status.js";
import { badArgument } from "./units.js";

/** A stream that is lost before its first message is begun again at most this often. */
const ATTEMPTS_MAX = 6;

/** What a stream needs from its client. */
export interface StreamSetup<T> {
  path: string;
  idempotent: boolean;
  payload: Uint8Array;
  metadata: readonly (readonly [string, string])[];
  scope: CallScope;
  /** The metadata for another attempt, after the broker refused the first. */
  renewed: (metadata: StreamSetup<T>["metadata"]) => StreamSetup<T>["metadata"];
  /** Milliseconds until that attempt; undefined: there is none. */
  askAgain: (error: StockadeError) => number | undefined;
  connection: (scope: CallScope) => Promise<Connection>;
  decode: (bytes: Uint8Array, connection: Connection) => T;
}

interface Waiter<T> {
  resolve: (r: IteratorResult<T, undefined>) => void;
  reject: (e: unknown) => void;
}

function asError(e: unknown): Error {
  return e instanceof Error ? e : new Error(String(e));
}

/** Messages of a stream, in order. One reader at a time; leaving the loop cancels the call. */
export class MessageStream<T> implements AsyncIterableIterator<T, undefined> {
  readonly #setup: StreamSetup<T>;
  readonly #window = CREDIT_DEFAULT;
  readonly #waiters: Waiter<T>[] = [];
  #queue: Uint8Array[] = [];
  #head = 0;
  #read = 0;
  #attempts = 0;
  #metadata: StreamSetup<T>["metadata"];
  #received = false;
  #connection: Connection | undefined;
  #ticket: Ticket | undefined;
  #end: { error: Error | undefined } | undefined;

  constructor(setup: StreamSetup<T>) {
    this.#setup = setup;
    this.#metadata = setup.metadata;
    setup.scope.onStop((why) => {
      this.#giveUp();
      this.#queue = [];
      this.#head = 0;
      this.#finish(why);
    });
    void this.#begin();
  }

  /** The next message; rejects with the call's error. */
  next(): Promise<IteratorResult<T, undefined>> {
    if (this.#head < this.#queue.length) {
      try {
        return Promise.resolve({ done: false, value: this.#take() });
      } catch (e) {
        this.#finish(asError(e));
        return Promise.reject(asError(e));
      }
    }
    if (this.#end !== undefined) {
      return this.#end.error === undefined
        ? Promise.resolve({ done: true, value: undefined })
        : Promise.reject(this.#end.error);
    }
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  /** Cancels the call and discards unread messages. Never rejects. */
  return(): Promise<IteratorResult<T, undefined>> {
    this.cancel();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** Cancels the call. The reader gets the end of the stream. */
  cancel(): void {
    this.#giveUp();
    this.#queue = [];
    this.#head = 0;
    this.#end = undefined;
    this.#finish(undefined);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #take(): T {
    const bytes = this.#queue[this.#head] as Uint8Array;
    this.#queue[this.#head++] = new Uint8Array(0);
    if (this.#head === this.#queue.length) {
      this.#queue = [];
      this.#head = 0;
    }
    const value = this.#setup.decode(bytes, this.#connection as Connection);
    if (++this.#read * 2 >= this.#window && this.#ticket !== undefined && this.#end === undefined) {
      this.#connection?.grant(this.#ticket, this.#read);
      this.#read = 0;
    }
    return value;
  }

  #giveUp(): void {
    if (this.#ticket !== undefined) {
      this.#connection?.cancel(this.#ticket);
      this.#ticket = undefined;
    }
  }

  #finish(error: Error | undefined): void {
    if (this.#end !== undefined) {
      return;
    }
    this.#end = { error };
    this.#setup.scope.done();
    for (const w of this.#waiters.splice(0)) {
      if (error === undefined) {
        w.resolve({ done: true, value: undefined });
      } else {
        w.reject(error);
      }
    }
  }

  async #begin(): Promise<void> {
    try {
      const connection = await this.#setup.connection(this.#setup.scope);
      if (this.#end === undefined) {
        this.#call(connection);
      }
    } catch (e) {
      this.#finish(asError(e));
    }
  }

  #call(connection: Connection): void {
    const { path, payload, scope } = this.#setup;
    const metadata = this.#metadata;
    this.#attempts++;
    this.#connection = connection;
    const timeoutMs = (): number => scope.remainingMs();
    const ticket = connection.call(
      { method: path, payload, metadata, streaming: true, credit: this.#window, timeoutMs },
      {
        onData: (bytes) => {
          this.#onData(bytes);
        },
        onEnd: (_, status) => {
          this.#onEnd(status);
        },
        onLost: (how, error) => {
          this.#onLost(how === "sent", error);
        },
      },
    );
    if (ticket === undefined) {
      this.#onLost(false, new Error("the connection takes no calls"));
    } else if (!ticket.over) {
      this.#ticket = ticket;
    }
  }

  #onData(bytes: Uint8Array): void {
    this.#received = true;
    this.#queue.push(bytes);
    const waiter = this.#waiters.shift();
    if (waiter === undefined) {
      return;
    }
    try {
      waiter.resolve({ done: false, value: this.#take() });
    } catch (e) {
      waiter.reject(e);
      this.#finish(asError(e));
    }
  }

  #onEnd(status: WireStatus | undefined): void {
    this.#ticket = undefined;
    if (status === undefined || status.code === Code.OK) {
      this.#finish(undefined);
      return;
    }
    const error = errorFromStatus(status, this.#setup.path);
    const wait = this.#received ? undefined : this.#setup.askAgain(error);
    if (wait === undefined) {
      this.#finish(error);
      return;
    }
    this.#attempts--;
    this.#metadata = this.#setup.renewed(this.#metadata);
    setTimeout(() => {
      if (this.#end === undefined) {
        void this.#begin();
      }
    }, wait);
  }

  #onLost(sent: boolean, error: Error): void {
    this.#ticket = undefined;
    if (error instanceof RangeError) {
      this.#finish(badArgument("request", error.message));
      return;
    }
    const again = !this.#received && (!sent || this.#setup.idempotent);
    if (again && this.#attempts < ATTEMPTS_MAX && !(error instanceof ProtocolError)) {
      void this.#begin();
    } else {
      this.#finish(connectionLost(this.#setup.path, error));
    }
  }
}
