// SPDX-License-Identifier: Apache-2.0
// One connection's protocol, without any input or output: bytes and the time go in, bytes and events come out.
//
//   received bytes -> receive() -> events (data, end, goaway)      call(), cancel(), grant() -> takeOutput()
//   the clock      -> tick()    -> PINGs, "the peer is gone"       deadline(): time of the next tick()
//
// It checks the peer: DATA only for open streams and only under the credit that was given, exactly
// one END per call, ids that were issued. Anything else is a ProtocolError, after which the connection must be closed.
//
// The owner of a cancelled call forgets it immediately, but the peer must still send END. The session keeps the id
// until then, and drops what arrives for it.
import { ProtocolError } from "./errors.js";
import { SpReader, decodeFrame, encodeFrame, hello, PROTOCOL_REQ } from "./frame.js";
import type { ClientFrame, Framing, ServerFrame } from "./frame.js";
import { FrameKind } from "./gen/stockade/v1/wire_pb.js";
import type { WireStatus } from "./status.js";

/** Open calls of one connection. */
export const CALLS_MAX = 1024;
/** Of those, streams. */
export const STREAMS_MAX = 128;
/** DATA frames of a stream that the peer may send without further credit. */
export const CREDIT_DEFAULT = 32;
/** Ids of calls end here; bit 30 marks calls that the server would begin. Then a new connection is needed. */
const ID_MAX = 0x3fffffff;
/** The broker allows one PING in 5 s, by its own clock: this leaves a margin. */
const KEEPALIVE_MIN_MS = 6000;
/** PINGs of the broker that are answered in such an interval, milliseconds. All clients have this limit. */
const PINGS_ANSWERED_MAX = 16;
const PINGS_ANSWERED_MS = 5000;

/** The contents of a CALL. */
export interface CallInit {
  method: string;
  payload: Uint8Array;
  streaming: boolean;
  /** Milliseconds; 0: the method's longest. */
  timeoutMs: number;
  credit: number;
  metadata: readonly (readonly [string, string])[];
}

export type SessionEvent =
  | { type: "open" }
  | { type: "data"; id: number; payload: Uint8Array }
  | { type: "end"; id: number; payload: Uint8Array; status: WireStatus | undefined }
  | { type: "goaway"; lastId: number; status: WireStatus | undefined };

export interface SessionOptions {
  framing: Framing;
  /**
   * Milliseconds without a frame after which a PING is sent; after the same time again, the connection counts as lost.
   * Frames of an unknown kind do not count.
   */
  keepaliveMs: number;
  /** Milliseconds that the peer has for its 8 bytes. */
  handshakeMs: number;
  /** Now, in milliseconds of a clock that never goes back. */
  now: number;
}

interface OpenCall {
  streaming: boolean;
  credit: number;
  dropped: boolean;
}

export class Session {
  readonly #framing: Framing;
  readonly #reader: SpReader;
  readonly #keepaliveMs: number;
  readonly #calls = new Map<number, OpenCall>();
  readonly #handshakeEnd: number;
  #output: Uint8Array[] = [];
  #lastId = 0;
  #streams = 0;
  #opened = false;
  #begunLast: number | undefined; // by the peer, as its GOAWAY said
  #now: number; // of the bytes that are being taken
  #heard: number;
  #pingSent = -Infinity;
  #pinged = false; // PING without an answer
  #pingsHeard = 0;
  #pingsSince = -Infinity;

  constructor(options: SessionOptions) {
    this.#framing = options.framing;
    this.#reader = new SpReader(options.framing);
    this.#keepaliveMs = Math.max(options.keepaliveMs, KEEPALIVE_MIN_MS);
    this.#now = this.#heard = options.now;
    this.#handshakeEnd = options.now + options.handshakeMs;
    if (options.framing !== "message") {
      this.#output.push(hello(PROTOCOL_REQ));
    }
  }

  /** The handshake is done. */
  get open(): boolean {
    return this.#opened;
  }

  /** No more calls may be begun: the peer said so, or the ids are used up. */
  get draining(): boolean {
    return this.#begunLast !== undefined || this.#lastId >= ID_MAX;
  }

  /** Calls whose END has not come. */
  get calls(): number {
    return this.#calls.size;
  }

  /** There is room for one more call of this kind. */
  hasRoom(streaming: boolean): boolean {
    return this.#calls.size < CALLS_MAX && (!streaming || this.#streams < STREAMS_MAX);
  }

  /** The bytes to be written, in order. */
  takeOutput(): Uint8Array[] {
    const out = this.#output;
    this.#output = [];
    return out;
  }

  /** Starts a call and returns its id. RangeError: it does not fit into a frame. */
  call(init: CallInit): number {
    if (!this.#opened || this.draining || !this.hasRoom(init.streaming)) {
      throw new Error("call() on a session that takes none now");
    }
    const id = this.#lastId + 1;
    this.#send(id, {
      kind: FrameKind.CALL,
      method: init.method,
      payload: init.payload,
      timeoutUs: BigInt(Math.ceil(init.timeoutMs * 1000)),
      credit: init.streaming ? init.credit : 0,
      metadata: init.metadata,
    });
    this.#lastId = id;
    this.#calls.set(id, { streaming: init.streaming, credit: init.credit, dropped: false });
    this.#streams += init.streaming ? 1 : 0;
    return id;
  }

  /** Cancels a call: no event of it follows. Does nothing if it has ended. */
  cancel(id: number): void {
    const call = this.#calls.get(id);
    if (call !== undefined && !call.dropped) {
      call.dropped = true;
      this.#send(id, { kind: FrameKind.CANCEL });
    }
  }

  /** Lets the peer send n more DATA frames of a stream. */
  grant(id: number, n: number): void {
    const call = this.#calls.get(id);
    if (call !== undefined && !call.dropped) {
      call.credit += n;
      this.#send(id, { kind: FrameKind.WINDOW, credit: n });
    }
  }

  /** Takes bytes as they came. ProtocolError: the peer broke the protocol; close the connection. */
  receive(chunk: Uint8Array, now: number): SessionEvent[] {
    this.#now = now;
    const events: SessionEvent[] = [];
    const bodies = this.#reader.push(chunk);
    if (!this.#opened && this.#reader.open) {
      this.#opened = true;
      this.#heard = now;
      events.push({ type: "open" });
    }
    for (const body of bodies) {
      this.#take(decodeFrame(body), events);
    }
    return events;
  }

  /** Says that a transport with messages of its own is connected: there is no handshake to wait for. */
  assumeOpen(): SessionEvent[] {
    this.#opened = true;
    return [{ type: "open" }];
  }

  /** The time of the next tick(), on the clock that `now` came from. */
  deadline(): number {
    if (!this.#opened) {
      return this.#handshakeEnd;
    }
    return Math.max(this.#heard + this.#keepaliveMs, this.#pingSent + this.#keepaliveMs);
  }

  /** Checks the time. A string: why the peer counts as gone; the connection must be closed. */
  tick(now: number): string | undefined {
    if (now < this.deadline()) {
      return undefined;
    }
    if (!this.#opened) {
      return "the peer did not say within the time allowed that it speaks SP";
    }
    if (this.#pinged) {
      return `the broker has not responded for ${(2 * this.#keepaliveMs) / 1000} s`;
    }
    this.#pinged = true;
    this.#pingSent = now;
    this.#send(0, { kind: FrameKind.PING, payload: new Uint8Array(0) });
    return undefined;
  }

  #send(id: number, frame: ClientFrame): void {
    this.#output.push(encodeFrame(this.#framing, id, frame));
  }

  #take(frame: ServerFrame, events: SessionEvent[]): void {
    if (frame.kind === FrameKind.UNSPECIFIED) {
      return; // of a newer broker; it does not replace the PONG
    }
    this.#heard = this.#now;
    this.#pinged = false;
    switch (frame.kind) {
      case FrameKind.DATA:
        this.#takeData(frame, events);
        break;
      case FrameKind.END:
        this.#takeEnd(frame, events);
        break;
      case FrameKind.PING:
        this.#takePing(frame);
        break;
      case FrameKind.GOAWAY:
        this.#forgetAbove(frame.id);
        events.push({ type: "goaway", lastId: frame.id, status: frame.status });
        break;
      case FrameKind.CALL:
      case FrameKind.CANCEL:
      case FrameKind.WINDOW:
        throw new ProtocolError(`the broker sent ${FrameKind[frame.kind]}, which only a client sends`);
      default: // PONG
        break;
    }
  }

  // GOAWAY: calls above the id were not begun.
  #forgetAbove(lastId: number): void {
    this.#begunLast = Math.min(lastId, this.#begunLast ?? lastId);
    for (const [id, call] of [...this.#calls]) {
      if (id > lastId) {
        this.#calls.delete(id);
        this.#streams -= call.streaming ? 1 : 0;
      }
    }
  }

  #takePing(frame: ServerFrame): void {
    if (frame.payload.length > 8) {
      throw new ProtocolError(`the broker sent a PING of ${frame.payload.length} bytes; at most 8 are allowed`);
    }
    if (this.#heard - this.#pingsSince >= PINGS_ANSWERED_MS) {
      this.#pingsSince = this.#heard;
      this.#pingsHeard = 0;
    }
    if (++this.#pingsHeard > PINGS_ANSWERED_MAX) {
      throw new ProtocolError(`the broker sent more than ${PINGS_ANSWERED_MAX} PINGs in ${PINGS_ANSWERED_MS / 1000} s`);
    }
    this.#send(frame.id, { kind: FrameKind.PONG, payload: frame.payload });
  }

  #openCall(frame: ServerFrame, kind: string): OpenCall {
    const call = this.#calls.get(frame.id);
    if (call === undefined) {
      const why = frame.id > this.#lastId || frame.id === 0 ? "was never made" : "has ended";
      throw new ProtocolError(`${kind} for call ${frame.id}, which ${why}`);
    }
    return call;
  }

  #takeData(frame: ServerFrame, events: SessionEvent[]): void {
    const call = this.#openCall(frame, "DATA");
    if (!call.streaming) {
      throw new ProtocolError(`DATA for call ${frame.id}, which is no stream`);
    }
    if (call.credit === 0) {
      throw new ProtocolError(`DATA for call ${frame.id} without credit`);
    }
    call.credit--;
    if (!call.dropped) {
      events.push({ type: "data", id: frame.id, payload: frame.payload });
    }
  }

  // A call that was sent before the GOAWAY arrived is forgotten here; the peer refuses it with an END.
  #crossed(id: number): boolean {
    return this.#begunLast !== undefined && id > this.#begunLast && id <= this.#lastId && !this.#calls.has(id);
  }

  #takeEnd(frame: ServerFrame, events: SessionEvent[]): void {
    if (this.#crossed(frame.id)) {
      return;
    }
    const call = this.#openCall(frame, "END");
    this.#calls.delete(frame.id);
    this.#streams -= call.streaming ? 1 : 0;
    if (!call.dropped) {
      events.push({ type: "end", id: frame.id, payload: frame.payload, status: frame.status });
    }
  }
}
