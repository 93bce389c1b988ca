// SPDX-License-Identifier: Apache-2.0
// The properties of one call: its deadline, its caller's abort signal, its metadata and idempotency key.
import { randomBytes } from "node:crypto";
import { getOption } from "@bufbuild/protobuf";
import type { DescMethod } from "@bufbuild/protobuf";
import { CancelledError, Code, DeadlineExceededError } from "./errors.js";
import type { StockadeError } from "./errors.js";
import { textOf, wrongType } from "./fields.js";
import { METADATA_BYTES_MAX, METADATA_ITEMS_MAX } from "./frame.js";
import { method as methodOption } from "./gen/stockade/v1/options_pb.js";
import { badArgument, knownOptions, parseDuration, wholeMilliseconds } from "./units.js";
import type { Duration } from "./units.js";

/** Options of any call. */
export interface CallOptions {
  /**
   * Deadline of the call (a number of seconds, or "250ms"): after it the broker cancels the work and the call rejects
   * with DeadlineExceededError. Default: the method's longest deadline.
   */
  deadline?: Duration;
  /** Cancels the call: it rejects with CancelledError; its `cause` is the signal's reason. */
  signal?: AbortSignal;
  /** Makes the broker execute the call once, however often it is sent. Default: a random key for calls that change
   * something. At most 128 characters. */
  idempotencyKey?: string;
  /**
   * Id of the approval to use, if the call needs one: see `ApprovalPendingError`. Default: the broker finds the one of
   * the call.
   */
  approval?: string;
  /**
   * The broker keeps the call open for so long, at most 10 minutes, if the call needs an approval that nobody has
   * answered yet. Default: 0, it rejects with ApprovalPendingError.
   */
  approvalWait?: Duration;
  /**
   * A policy that allows no more than it says for this call, with the keys `otherwise`, `reason` and `rules` of
   * stockade-policy(5), as YAML or JSON; at most 4,096 bytes. It narrows what the broker's policies allow.
   */
  policy?: string;
  /** More metadata, such as { traceparent: "..." }; lower-case keys. */
  metadata?: Readonly<Record<string, string>>;
}

const CALL_OPTIONS = {
  deadline: true,
  signal: true,
  idempotencyKey: true,
  approval: true,
  approvalWait: true,
  policy: true,
  metadata: true,
} as const;

/** What the .proto files say about a method. */
export interface MethodRules {
  /** Doing it twice is the same as doing it once. */
  idempotent: boolean;
  /** Longest deadline in milliseconds; 0: none. */
  deadlineMsMax: number;
}

const rules = new WeakMap<DescMethod, MethodRules>();

/** Reads the options of a method once. */
export function rulesOf(method: DescMethod): MethodRules {
  let found = rules.get(method);
  if (found === undefined) {
    const { idempotent, deadlineMsMax } = getOption(method, methodOption);
    found = { idempotent, deadlineMsMax };
    rules.set(method, found);
  }
  return found;
}

/** "/stockade.v1.ProcessService/Run" */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** The metadata of a call, checked as the broker does. */
export function metadataOf(
  method: DescMethod,
  token: string | undefined,
  options: CallOptions,
): (readonly [string, string])[] {
  knownOptions(options, CALL_OPTIONS);
  const { idempotencyKey, approval, policy, signal } = options;
  for (const [name, value] of Object.entries({ idempotencyKey, approval, policy })) {
    if (value !== undefined) textOf(value, name);
  }
  if (signal !== undefined && !((signal as unknown) instanceof AbortSignal)) {
    throw wrongType(signal, "signal", "an AbortSignal");
  }
  const pairs: (readonly [string, string])[] = [];
  if (token !== undefined && token !== "" && options.metadata?.["authorization"] === undefined) {
    pairs.push(["authorization", `Bearer ${token}`]);
  }
  if (options.idempotencyKey !== undefined || !rulesOf(method).idempotent) {
    pairs.push(["idempotency-key", options.idempotencyKey ?? randomBytes(16).toString("hex")]);
  }
  if (options.approval !== undefined) {
    pairs.push(["approval", options.approval]);
  }
  if (options.approvalWait !== undefined) {
    pairs.push(["approval-wait", String(wholeMilliseconds(options.approvalWait, "approvalWait"))]);
  }
  if (options.policy !== undefined) {
    pairs.push(["policy", options.policy]);
  }
  pairs.push(...Object.entries(options.metadata ?? {}));
  let bytes = 0;
  for (const [key, value] of pairs) {
    textOf(value, `metadata[${JSON.stringify(key)}]`);
    if (!/^[a-z0-9_.-]{1,64}$/.test(key) || /[\x00-\x1f\x7f]/.test(value) || value.length > 4096) {
      throw badArgument(`metadata[${JSON.stringify(key)}]`, "keys are [a-z0-9_.-]{1,64}, values printable, up to 4096");
    }
    bytes += Buffer.byteLength(key) + Buffer.byteLength(value);
  }
  if (bytes > METADATA_BYTES_MAX || pairs.length > METADATA_ITEMS_MAX) {
    throw badArgument("metadata", `at most ${METADATA_ITEMS_MAX} pairs and ${METADATA_BYTES_MAX} bytes in all`);
  }
  return pairs;
}

/** The same metadata with another idempotency key, unless the caller chose it: what was refused is a new request. */
export function renewed(
  metadata: readonly (readonly [string, string])[],
  options: CallOptions,
): readonly (readonly [string, string])[] {
  return options.idempotencyKey !== undefined
    ? metadata
    : metadata.map(([key, value]) => [key, key === "idempotency-key" ? randomBytes(16).toString("hex") : value]);
}

/** Added to a method's longest deadline on this side, so that the broker's own error arrives first. */
const GRACE_MS = 5000;
/** Longest time that setTimeout takes. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** From the start of a call to its end: its deadline, and the callbacks for its cancellation. */
export class CallScope {
  readonly #path: string;
  readonly #end: number;
  readonly #signal: AbortSignal | undefined;
  readonly #stops = new Set<(why: StockadeError) => void>();
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #onAbort = (): void => {
    this.#stop(
      new CancelledError(Code.CANCELLED, `${this.#path}: given up by the caller`, {
        method: this.#path,
        cause: this.#signal?.reason,
      }),
    );
  };
  #stopped: StockadeError | undefined;

  constructor(method: DescMethod, options: CallOptions) {
    this.#path = pathOf(method);
    this.#signal = options.signal;
    const own = options.deadline === undefined ? undefined : parseDuration(options.deadline, "deadline");
    const longest = rulesOf(method).deadlineMsMax;
    const wait = own ?? (longest > 0 ? longest + GRACE_MS : Infinity);
    this.#end = own === undefined ? Infinity : performance.now() + own;
    if (wait <= TIMER_MS_MAX) {
      this.#timer = setTimeout(() => {
        const text = `${this.#path}: no answer within ${wait} ms`;
        this.#stop(new DeadlineExceededError(Code.DEADLINE_EXCEEDED, text, { method: this.#path }));
      }, wait);
    }
    if (options.signal?.aborted === true) {
      this.#onAbort();
    } else {
      options.signal?.addEventListener("abort", this.#onAbort, { once: true });
    }
  }

  /** Why the call must stop; undefined: it need not. */
  get stopped(): StockadeError | undefined {
    return this.#stopped;
  }

  /** Milliseconds left, at least 1; 0: no deadline was asked for. */
  remainingMs(): number {
    return this.#end === Infinity ? 0 : Math.max(1, this.#end - performance.now());
  }

  /** Calls `stop` when the call must stop, or immediately if it must already. Returns a function that undoes this. */
  onStop(stop: (why: StockadeError) => void): () => void {
    if (this.#stopped !== undefined) {
      stop(this.#stopped);
    } else {
      this.#stops.add(stop);
    }
    return () => this.#stops.delete(stop);
  }

  /** The promise's value, unless the call must stop first. */
  async race<T>(promise: Promise<T>): Promise<T> {
    let undo: (() => void) | undefined;
    try {
      return await Promise.race([
        promise,
        new Promise<never>((_, reject) => {
          undo = this.onStop(reject);
        }),
      ]);
    } finally {
      undo?.();
    }
  }

  /** The call has ended. */
  done(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#stops.clear();
  }

  #stop(why: StockadeError): void {
    if (this.#stopped !== undefined) {
      return;
    }
    this.#stopped = why;
    for (const stop of [...this.#stops]) {
      stop(why);
    }
  }
}
