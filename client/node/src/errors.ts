// SPDX-License-Identifier: Apache-2.0
// Failures as classes: one for each status code, so that `catch` can distinguish them by `instanceof`.
//
// A refusal has its reason: `reason` is for programs, `rule` or `limit` name the cause, `hint` says how to request
// more. A job that fails is not an error: its result says so (see `RunResult`), unless `check` is set.
/** Numbers of google.rpc.Code. */
export const Code = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

/** A field of a request that the broker refused. */
export interface FieldViolation {
  /** Path of the field, such as "limits.memory_bytes". */
  field: string;
  /** The reason. */
  description: string;
}

/** An exhausted quota. */
export interface QuotaViolation {
  /** Owner of the quota, such as "uid:1000". */
  subject: string;
  /** Name of the quota, its value and the requested value. */
  description: string;
}

/** Details of an error. */
export interface ErrorDetails {
  /** The reason in UPPER_SNAKE_CASE, for programs, such as "LIMIT_ABOVE_MAXIMUM"; or "". */
  reason?: string;
  /** Details of the reason: the rule, the requested value, the permitted value, how to request more. */
  info?: Readonly<Record<string, string>>;
  /** Wrong fields. */
  fields?: readonly FieldViolation[];
  /** Exhausted quotas. */
  quotas?: readonly QuotaViolation[];
  /** Seconds to wait before a retry, if the broker sent a time. */
  retryAfter?: number | undefined;
  /** The method that was called, such as "/stockade.v1.ProcessService/Run". */
  method?: string;
  /** The local error that caused it. */
  cause?: unknown;
}

/** Base class of the errors of a call. */
export class StockadeError extends Error {
  /** A google.rpc.Code number: see `Code`. */
  readonly code: number;
  /** The code's name, such as "INVALID_ARGUMENT". */
  readonly codeName: string;
  /** The reason in UPPER_SNAKE_CASE, for programs, such as "LIMIT_ABOVE_MAXIMUM"; or "". */
  readonly reason: string;
  /** Details of the reason. */
  readonly info: Readonly<Record<string, string>>;
  /** Wrong fields of the request. */
  readonly fields: readonly FieldViolation[];
  /** Exhausted quotas. */
  readonly quotas: readonly QuotaViolation[];
  /** Seconds to wait before a retry, if the broker sent a time. */
  readonly retryAfter: number | undefined;
  /** The method that was called, or "". */
  readonly method: string;

  constructor(code: number, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.codeName = codeName(code);
    this.reason = details.reason ?? "";
    this.info = details.info ?? {};
    this.fields = details.fields ?? [];
    this.quotas = details.quotas ?? [];
    this.retryAfter = details.retryAfter;
    this.method = details.method ?? "";
  }

  /** The rule, limit, quota or field that refused the call, or undefined. */
  get subject(): string | undefined {
    return (
      this.info["subject"] ??
      this.info["rule"] ??
      this.info["limit"] ??
      this.fields[0]?.field ??
      this.quotas[0]?.subject
    );
  }

  /** How to fix the request or to request more, or undefined. */
  get hint(): string | undefined {
    return this.info["hint"];
  }

  /** What refused the call: LAYER/ID of a policy's rule, a caveat, right, limit or quota; or undefined. */
  get rule(): string | undefined {
    return this.info["rule"];
  }

  /** Which calls would be allowed instead, in words, or undefined. */
  get allowed(): string | undefined {
    return this.info["allowed"];
  }

  /** The error in a line: with its reason, and if it was refused the rule, what would be allowed, and how to ask. */
  override toString(): string {
    const facts = Object.entries({ rule: this.rule, allowed: this.allowed, hint: this.hint });
    const known = facts.filter(([, value]) => value !== undefined && value !== "");
    const said = known.map(([key, value]) => `${key}: ${value}`).join("; ");
    const why = [this.reason, said].filter((part) => part !== "").join(", ");
    return `${this.name}: ${this.message}${why === "" ? "" : ` [${why}]`}`;
  }
}

/** CANCELLED: the caller cancelled the call. */
export class CancelledError extends StockadeError {}
/** UNKNOWN: the broker sent a code that this client does not know. */
export class UnknownError extends StockadeError {}
/** INVALID_ARGUMENT: a field is out of its bounds; `fields` names it. */
export class InvalidArgumentError extends StockadeError {}
/** DEADLINE_EXCEEDED: the `deadline` of the call has passed. The broker cancelled its work. */
export class DeadlineExceededError extends StockadeError {}
/** NOT_FOUND: the sandbox or process does not exist, or belongs to another caller. */
export class NotFoundError extends StockadeError {}
/** ALREADY_EXISTS: the name is in use. */
export class AlreadyExistsError extends StockadeError {}
/** PERMISSION_DENIED: the caller or its token does not have the right. */
export class PermissionDeniedError extends StockadeError {}
/** RESOURCE_EXHAUSTED: a quota or a queue is full; see `quotas` and `retryAfter`. */
export class ResourceExhaustedError extends StockadeError {}
/** FAILED_PRECONDITION: not possible in the current state, such as a paused sandbox or a closed stdin. */
export class FailedPreconditionError extends StockadeError {}
/**
 * FAILED_PRECONDITION with the reason "APPROVAL_PENDING": the call needs an approval that nobody has answered yet. Make
 * the same call again after the answer, or use the option `approvalWait`.
 */
export class ApprovalPendingError extends FailedPreconditionError {
  /** The id of the approval, for `Approval.connect` and the option `approval`. */
  get approval(): string {
    return this.subject ?? "";
  }
}
/** ABORTED: the call conflicted with another one, such as one that deleted the sandbox. */
export class AbortedError extends StockadeError {}
/** OUT_OF_RANGE: a position is beyond the end. */
export class OutOfRangeError extends StockadeError {}
/** UNIMPLEMENTED: this broker does not have the method. */
export class UnimplementedError extends StockadeError {}
/** INTERNAL: the broker failed. */
export class InternalError extends StockadeError {}
/** UNAVAILABLE: the broker cannot be reached or accepts no new calls. The call was not executed. */
export class UnavailableError extends StockadeError {}
/** The connection to the broker failed: nothing was sent. Reason "CONNECT_FAILED". */
export class BrokerUnreachableError extends UnavailableError {
  constructor(message: string, details: ErrorDetails = {}) {
    super(Code.UNAVAILABLE, message, { reason: "CONNECT_FAILED", ...details });
  }
}
/**
 * The connection broke during the call, which may have been executed. This library sends a call again only if that is
 * known to be safe. Reason "CONNECTION_LOST".
 */
export class ConnectionLostError extends UnavailableError {
  constructor(message: string, details: ErrorDetails = {}) {
    const info = { hint: "see what it did before you call it again" };
    super(Code.UNAVAILABLE, message, { reason: "CONNECTION_LOST", info, ...details });
  }
}
/** DATA_LOSS: data was lost or damaged. */
export class DataLossError extends StockadeError {}
/** UNAUTHENTICATED: the token is missing or invalid. */
export class UnauthenticatedError extends StockadeError {}

/** The peer broke the protocol. The connection is closed, and its calls reject with this error (code INTERNAL). */
export class ProtocolError extends StockadeError {
  constructor(message: string, details: ErrorDetails = {}) {
    super(Code.INTERNAL, message, { reason: "PROTOCOL_ERROR", ...details });
  }
}

const classes: ReadonlyMap<number, new (code: number, message: string, d?: ErrorDetails) => StockadeError> = new Map([
  [Code.CANCELLED, CancelledError],
  [Code.UNKNOWN, UnknownError],
  [Code.INVALID_ARGUMENT, InvalidArgumentError],
  [Code.DEADLINE_EXCEEDED, DeadlineExceededError],
  [Code.NOT_FOUND, NotFoundError],
  [Code.ALREADY_EXISTS, AlreadyExistsError],
  [Code.PERMISSION_DENIED, PermissionDeniedError],
  [Code.RESOURCE_EXHAUSTED, ResourceExhaustedError],
  [Code.FAILED_PRECONDITION, FailedPreconditionError],
  [Code.ABORTED, AbortedError],
  [Code.OUT_OF_RANGE, OutOfRangeError],
  [Code.UNIMPLEMENTED, UnimplementedError],
  [Code.INTERNAL, InternalError],
  [Code.UNAVAILABLE, UnavailableError],
  [Code.DATA_LOSS, DataLossError],
  [Code.UNAUTHENTICATED, UnauthenticatedError],
]);

const codeNames: ReadonlyMap<number, string> = new Map(Object.entries(Code).map(([name, n]) => [n, name]));

/** The name of a code, such as "INVALID_ARGUMENT" for 3; "UNKNOWN" for an unknown number. */
export function codeName(code: number): string {
  return codeNames.get(code) ?? "UNKNOWN";
}

/** Makes an error of the class that belongs to the code; `UnknownError` for an unknown number. */
export function makeError(code: number, message: string, details: ErrorDetails = {}): StockadeError {
  const pending = code === Code.FAILED_PRECONDITION && details.reason === "APPROVAL_PENDING";
  const Class = pending ? ApprovalPendingError : classes.get(code) ?? UnknownError;
  return new Class(code, message, details);
}
