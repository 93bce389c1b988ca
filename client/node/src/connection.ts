// One connection: a transport, a session on it, and whoever waits for the session's events.
//
// It says of each call that it loses how far it got, because that decides whether somebody may send it again:
// "unsent" (it never left), "refused" (the peer's GOAWAY says that it was not begun) or "sent" (nobody knows).
import { BrokerUnreachableError, ProtocolError } from "./errors.js";
import { Session } from "./session.js";
import type { CallInit, SessionEvent } from "./session.js";
import type { WireStatus } from "./status.js";
import type { Dial, Transport, TransportEvents } from "./transport.js";

/** How far a call got on a connection that is gone. */
export type Lost = "unsent" | "refused" | "sent";

/** Whoever waits for a call. Exactly one of onEnd and onLost is called, once. */
export interface CallListener {
  onData(payload: Uint8Array): void;
  onEnd(payload: Uint8Array, status: WireStatus | undefined): void;
  onLost(how: Lost, error: Error): void;
}

export interface ConnectionOptions {
  address: string;
  dial: Dial;
  keepaliveMs: number;
  connectMs: number;
  /** Called once, when the connection is over. */
  onClose: (connection: Connection) => void;
}

export class Connection {
  readonly #listeners = new Map<number, CallListener>();
  readonly #transport: Transport;
  readonly #session: Session;
  readonly #onClose: (connection: Connection) => void;
  #waiting: (() => void)[] = [];
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

  /** Connects and shakes hands. UnavailableError: nobody answers. ProtocolError: it is no broker. */
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
      const why = e instanceof Error ? e.message : String(e);
      throw new BrokerUnreachableError(`connect to ${options.address}: ${why}`, { cause: e });
    }
    return made;
  }

  /** Why the connection is over; undefined while it is not. */
  get closed(): Error | undefined {
    return this.#closed;
  }

  /** New calls may be begun. */
  get usable(): boolean {
    return this.#closed === undefined && !this.#session.draining;
  }

  /** A call of this kind may be begun now. */
  hasRoom(streaming: boolean): boolean {
    return this.usable && this.#session.hasRoom(streaming);
  }

  /** Waits until a call of this kind fits. Comes back as well when the connection is no longer usable. */
  async room(streaming: boolean): Promise<void> {
    while (this.usable && !this.#session.hasRoom(streaming)) {
      await new Promise<void>((wake) => this.#waiting.push(wake));
    }
  }

  /** Begins a call, or gives undefined when the connection takes none now. RangeError: it is too large. */
  call(init: CallInit, listener: CallListener): number | undefined {
    if (!this.hasRoom(init.streaming)) {
      return undefined;
    }
    const id = this.#session.call(init);
    this.#listeners.set(id, listener);
    this.#flush();
    return id;
  }

  /** Gives a call up; its listener hears nothing more. */
  cancel(id: number): void {
    if (this.#listeners.delete(id) && this.#closed === undefined) {
      this.#session.cancel(id);
      this.#flush();
    }
  }

  /** Lets the peer send n more messages of a stream. */
  grant(id: number, n: number): void {
    if (this.#listeners.has(id) && this.#closed === undefined) {
      this.#session.grant(id, n);
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
    this.#flush();
  }

  #handle(events: readonly SessionEvent[]): void {
    for (const event of events) {
      if (event.type === "open") {
        this.#whenOpen?.resolve();
        this.#whenOpen = undefined;
      } else if (event.type === "data") {
        this.#listeners.get(event.id)?.onData(event.payload);
      } else if (event.type === "end") {
        const listener = this.#listeners.get(event.id);
        this.#listeners.delete(event.id);
        listener?.onEnd(event.payload, event.status);
      } else {
        this.#goaway(event.lastId, event.status);
      }
    }
    this.#wake();
  }

  #goaway(lastId: number, status: WireStatus | undefined): void {
    this.#farewell = status?.message ?? "";
    for (const [id, listener] of [...this.#listeners]) {
      if (id > lastId) {
        this.#listeners.delete(id);
        listener.onLost("refused", new Error("the broker is going away and did not begin the call"));
      }
    }
  }

  #wake(): void {
    if (this.#waiting.length === 0) {
      return;
    }
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) {
      wake();
    }
  }

  #flush(): void {
    for (const bytes of this.#session.takeOutput()) {
      this.#transport.write(bytes);
    }
    this.#transport.keepAlive(this.#listeners.size > 0 || !this.#session.open);
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

  // What the broker said before it closed tells more than that it closed.
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
    const listeners = [...this.#listeners.values()];
    this.#listeners.clear();
    for (const listener of listeners) {
      listener.onLost("sent", error);
    }
    this.#wake();
  }
}
