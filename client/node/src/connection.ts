// SPDX-License-Identifier: Apache-2.0
// One connection: a transport, a session on it, and the listeners for the session's events.
//
// For each call that it loses it reports how far the call got, because this decides whether it may be sent again:
// "unsent" (it never left), "refused" (the peer's GOAWAY says that it was not begun) or "sent" (unknown).
import { BrokerUnreachableError, ProtocolError } from "./errors.js";
import { Session } from "./session.js";
import type { CallInit, SessionEvent } from "./session.js";
import type { WireStatus } from "./status.js";
import { rejected } from "./transport.js";
import type { Dial, Transport, TransportEvents } from "./transport.js";

/** How far a call got on a connection that was lost. */
export type Lost = "unsent" | "refused" | "sent";

/** The listener of a call. Exactly one of onEnd and onLost is called, once. */
export interface CallListener {
  onData(payload: Uint8Array): void;
  onEnd(payload: Uint8Array, status: WireStatus | undefined): void;
  onLost(how: Lost, error: Error): void;
}

/** A call; its timeout is computed when it is sent. */
export interface QueuedCall extends Omit<CallInit, "timeoutMs"> {
  timeoutMs: () => number;
}

/** A call that was begun or waits for room. */
export interface Ticket {
  readonly init: QueuedCall;
  readonly listener: CallListener;
  /** Undefined while it waits. */
  id: number | undefined;
  over: boolean;
}

export interface ConnectionOptions {
  address: string;
  dial: Dial;
  keepaliveMs: number;
  connectMs: number;
  /** Called once, when the connection has ended. */
  onClose: (connection: Connection) => void;
}

export class Connection {
  readonly #tickets = new Map<number, Ticket>();
  readonly #queues = { unary: [] as Ticket[], streams: [] as Ticket[] };
  readonly #transport: Transport;
  readonly #session: Session;
  readonly #onClose: (connection: Connection) => void;
  #timer: NodeJS.Timeout | undefined;
  #closed: Error | undefined;
  #farewell = "";
  #whenOpen: { resolve: () => void; reject: (e: Error) => void } | undefined;

  private constructor(transport: Transport, options: ConnectionOptions) {
    this.#transport = transport;
    this.#onClose = options.onClose;
    this.#session = new Session({
      framing: transport.framing,
      keepaliveMs: options.keepaliveMs,
      handshakeMs: options.connectMs,
      now: performance.now(),
    });
  }

  /** Connects, with the handshake. UnavailableError: no answer. ProtocolError: the peer is not a broker. */
  static async open(options: ConnectionOptions): Promise<Connection> {
    const slot: { connection?: Connection } = {};
    const early: Uint8Array[] = [];
    let earlyClose: Error | undefined;
    const events: TransportEvents = {
      onData: (chunk) => {
        if (slot.connection === undefined) {
          early.push(chunk);
        } else {
          slot.connection.#receive(chunk);
        }
      },
      onClose: (error) => {
        const why = error ?? new Error("the peer closed the connection");
        earlyClose = why;
        if (slot.connection !== undefined) {
          slot.connection.#peerClosed(why);
        }
      },
    };
    const transport = await options.dial(options.address, events, AbortSignal.timeout(options.connectMs));
    const made = new Connection(transport, options);
    slot.connection = made;
    const opened = new Promise<void>((resolve, reject) => (made.#whenOpen = { resolve, reject }));
    made.#start(early);
    if (earlyClose !== undefined) {
      made.#end(earlyClose);
    }
    try {
      await opened;
    } catch (e) {
      if (e instanceof ProtocolError) {
        throw e;
      }
      const why = e instanceof Error ? e : new Error(String(e));
      if (earlyClose !== undefined) {
        throw rejected(options.address, why);
      }
      throw new BrokerUnreachableError(`connect to ${options.address}: ${why.message}`, { cause: e });
    }
    return made;
  }

  /** Why the connection has ended; undefined: it has not. */
  get closed(): Error | undefined {
    return this.#closed;
  }

  /** New calls may be begun. */
  get usable(): boolean {
    return this.#closed === undefined && !this.#session.draining;
  }

  /**
   * Begins a call, as soon as the peer's limits on open calls and streams leave room for it. Undefined: the connection
   * takes no calls any more.
   */
  call(init: QueuedCall, listener: CallListener): Ticket | undefined {
    if (!this.usable) {
      return undefined;
    }
    const ticket: Ticket = { init, listener, id: undefined, over: false };
    this.#queues[init.streaming ? "streams" : "unary"].push(ticket);
    this.#pump();
    return ticket;
  }

  /** Cancels a call; its listener is not called any more. */
  cancel(ticket: Ticket): void {
    if (ticket.over) {
      return;
    }
    ticket.over = true;
    if (ticket.id !== undefined && this.#tickets.delete(ticket.id) && this.#closed === undefined) {
      this.#session.cancel(ticket.id);
    }
    this.#flush();
  }

  /** Lets the peer send n more messages of a stream. */
  grant(ticket: Ticket, n: number): void {
    if (!ticket.over && ticket.id !== undefined && this.#closed === undefined) {
      this.#session.grant(ticket.id, n);
      this.#flush();
    }
  }

  /** Ends the connection; calls on it are lost. */
  close(why: Error = new Error("the connection was closed by this program")): void {
    this.#end(why);
  }

  #start(early: readonly Uint8Array[]): void {
    if (this.#transport.framing === "message") {
      this.#handle(this.#session.assumeOpen());
    }
    this.#flush();
    this.#schedule();
    for (const chunk of early) {
      this.#receive(chunk);
    }
  }

  #receive(chunk: Uint8Array): void {
    if (this.#closed !== undefined) {
      return;
    }
    try {
      this.#handle(this.#session.receive(chunk, performance.now()));
    } catch (e) {
      if (!(e instanceof ProtocolError)) {
        throw e;
      }
      this.#end(e);
      return;
    }
  }

  #handle(events: readonly SessionEvent[]): void {
    for (const event of events) {
      if (event.type === "open") {
        this.#whenOpen?.resolve();
        this.#whenOpen = undefined;
      } else if (event.type === "data") {
        this.#tickets.get(event.id)?.listener.onData(event.payload);
      } else if (event.type === "end") {
        this.#take(event.id)?.onEnd(event.payload, event.status);
      } else {
        this.#goaway(event.lastId, event.status);
      }
    }
    this.#pump();
  }

  #goaway(lastId: number, status: WireStatus | undefined): void {
    this.#farewell = status?.message ?? "";
    const why = new Error("the broker is going away and did not begin the call");
    for (const id of [...this.#tickets.keys()].filter((n) => n > lastId)) {
      this.#take(id)?.onLost("refused", why);
    }
    this.#loseQueued(why);
  }

  // The listener of an open call, which ends with this.
  #take(id: number): CallListener | undefined {
    const ticket = this.#tickets.get(id);
    this.#tickets.delete(id);
    if (ticket !== undefined) {
      ticket.over = true;
    }
    return ticket?.listener;
  }

  #loseQueued(why: Error): void {
    for (const queue of [this.#queues.unary, this.#queues.streams]) {
      for (const ticket of queue.splice(0)) {
        if (!ticket.over) {
          ticket.over = true;
          ticket.listener.onLost("unsent", why);
        }
      }
    }
  }

  // Sends the waiting calls for which there is room.
  #pump(): void {
    for (const queue of [this.#queues.unary, this.#queues.streams]) {
      while (queue[0] !== undefined && this.usable && this.#session.hasRoom(queue[0].init.streaming)) {
        const ticket = queue.shift() as Ticket;
        if (!ticket.over) {
          this.#begin(ticket);
        }
      }
    }
    this.#flush();
  }

  #begin(ticket: Ticket): void {
    try {
      ticket.id = this.#session.call({ ...ticket.init, timeoutMs: ticket.init.timeoutMs() });
      this.#tickets.set(ticket.id, ticket);
    } catch (e) {
      if (!(e instanceof RangeError)) {
        throw e;
      }
      ticket.over = true;
      ticket.listener.onLost("unsent", e);
    }
  }

  #flush(): void {
    if (this.#closed !== undefined) {
      return;
    }
    for (const bytes of this.#session.takeOutput()) {
      this.#transport.write(bytes);
    }
    this.#transport.keepAlive(this.#tickets.size > 0 || !this.#session.open);
    if (this.#session.draining && this.#session.calls === 0) {
      this.#end(new Error("the broker is going away"));
    }
  }

  #schedule(): void {
    const wait = Math.max(1, this.#session.deadline() - performance.now());
    this.#timer = setTimeout(() => {
      this.#tick();
    }, wait);
    this.#timer.unref();
  }

  // The broker's own reason, which arrived before the end, says more than the end.
  #peerClosed(error: Error): void {
    this.#end(this.#farewell === "" ? error : new Error(this.#farewell, { cause: error }));
  }

  #tick(): void {
    const gone = this.#session.tick(performance.now());
    if (gone !== undefined) {
      this.#end(new Error(gone));
      return;
    }
    this.#flush();
    if (this.#closed === undefined) {
      this.#schedule();
    }
  }

  #end(error: Error): void {
    if (this.#closed !== undefined) {
      return;
    }
    this.#closed = error;
    clearTimeout(this.#timer);
    this.#transport.close();
    this.#onClose(this);
    this.#whenOpen?.reject(error);
    this.#whenOpen = undefined;
    for (const id of [...this.#tickets.keys()]) {
      this.#take(id)?.onLost("sent", error);
    }
    this.#loseQueued(error);
  }
}
