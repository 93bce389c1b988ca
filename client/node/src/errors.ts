// SPDX-License-Identifier: Apache-2.0
// What can go wrong, as classes: one per status code, so that `catch` can tell them apart by `instanceof`.
//
// A refusal explains itself: `reason` is for programs, `rule` or `limit` name what said no, `hint` says how to ask for
// more. A job that ends badly is no error at all: its result says so (see `RunResult`), unless `check` was asked for.
/** Numbers of google.rpc.Code, as every call ends with one. */
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

/** One field of a request that the broker did not accept. */
export interface FieldViolation {
  /** Path of the field, such as "limits.memory_bytes". */
  field: string;
  /** What is wrong with it. */
  description: string;
}

/** One quota that is used up. */
export interface QuotaViolation {
  /** Whose quota, such as "uid:1000". */
  subject: string;
  /** Its name, its value and the value asked for. */
  description: string;
}

/** What an error knows beside its sentence. */
export interface ErrorDetails {
  /** UPPER_SNAKE_CASE for programs, such as "LIMIT_ABOVE_MAXIMUM"; "" where none was given. */
  reason?: string;
  /** What the broker told with the reason: the rule, the value asked for, the value allowed, how to ask for more. */
  info?: Readonly<Record<string, string>>;
  /** Fields that are wrong. */
  fields?: readonly FieldViolation[];
  /** Quotas that are used up. */
  quotas?: readonly QuotaViolation[];
  /** Seconds to wait before asking again, where the broker said so. */
  retryAfter?: number | undefined;
  /** The method that was called, such as "/stockade.v1.ProcessService/Run". */
  method?: string;
  /** What caused it on this side of the connection. */
  cause?: unknown;
}

/** Base of everything that a call can end with. */
export class StockadeError extends Error {
  /** A google.rpc.Code number: see `Code`. */
  readonly code: number;
  /** The code's name, such as "INVALID_ARGUMENT". */
  readonly codeName: string;
  /** UPPER_SNAKE_CASE for programs, such as "LIMIT_ABOVE_MAXIMUM"; "" where none was given. */
  readonly reason: string;
  /** What the broker told with the reason. */
  readonly info: Readonly<Record<string, string>>;
  /** Fields of the request that are wrong. */
  readonly fields: readonly FieldViolation[];
  /** Quotas that are used up. */
  readonly quotas: readonly QuotaViolation[];
  /** Seconds to wait before asking again, where the broker said so. */
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

  /** The rule, limit, quota or field that said no; undefined where the broker named none. */
  get subject(): string | undefined {
    return (
      this.info["subject"] ??
      this.info["rule"] ??
      this.info["limit"] ??
      this.fields[0]?.field ??
      this.quotas[0]?.subject
    );
  }

  /** How to ask for more, or what to do; undefined where the broker did not say. */
  get hint(): string | undefined {
    return this.info["hint"];
  }
}

/** CANCELLED: the caller gave the call up, or the sandbox was deleted under it. */
export class CancelledError extends StockadeError {}
/** UNKNOWN: the broker sent a code that this client does not know. */
export class UnknownError extends StockadeError {}
/** INVALID_ARGUMENT: a field is out of its bounds; `fields` names it. */
export class InvalidArgumentError extends StockadeError {}
/** DEADLINE_EXCEEDED: the call's `deadline` passed. The work that it asked for was cancelled. */
export class DeadlineExceededError extends StockadeError {}
/** NOT_FOUND: there is no such sandbox or process, or it belongs to somebody else. */
export class NotFoundError extends StockadeError {}
/** ALREADY_EXISTS: the name is taken. */
export class AlreadyExistsError extends StockadeError {}
/** PERMISSION_DENIED: the caller or its token may not do this. */
export class PermissionDeniedError extends StockadeError {}
/** RESOURCE_EXHAUSTED: a quota or a queue is full; `quotas` and `retryAfter` tell more. */
export class ResourceExhaustedError extends StockadeError {}
/** FAILED_PRECONDITION: not in this state, such as a paused sandbox or a closed stdin. */
export class FailedPreconditionError extends StockadeError {}
/** ABORTED: something else came in between; ask again. */
export class AbortedError extends StockadeError {}
/** OUT_OF_RANGE: past the end of what there is. */
export class OutOfRangeError extends StockadeError {}
/** UNIMPLEMENTED: this broker has no such method. */
export class UnimplementedError extends StockadeError {}
/** INTERNAL: the broker failed. */
export class InternalError extends StockadeError {}
/** UNAVAILABLE: the broker cannot be reached or takes no new calls. The call was not executed. */
export class UnavailableError extends StockadeError {}
/** No connection to the broker could be made: nothing was sent. Reason "CONNECT_FAILED". */
export class BrokerUnreachableError extends UnavailableError {
  constructor(message: string, details: ErrorDetails = {}) {
    super(Code.UNAVAILABLE, message, { reason: "CONNECT_FAILED", ...details });
  }
}
/**
 * The connection broke while the call was open, and the call may have been executed. This library does not send it a
 * second time by itself unless that is known to be harmless. Reason "CONNECTION_LOST".
 */
export class ConnectionLostError extends UnavailableError {
  constructor(message: string, details: ErrorDetails = {}) {
    super(Code.UNAVAILABLE, message, { reason: "CONNECTION_LOST", ...details });
  }
}
/** DATA_LOSS: something that should be there is gone. */
export class DataLossError extends StockadeError {}
/** UNAUTHENTICATED: no token, or one that is not valid. */
export class UnauthenticatedError extends StockadeError {}

/** The peer broke the protocol. The connection is closed, and calls on it end with this (code INTERNAL). */
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

/** "INVALID_ARGUMENT" for 3; "UNKNOWN" for a number that is no code. */
export function codeName(code: number): string {
  return codeNames.get(code) ?? "UNKNOWN";
}

/** An error of the class that belongs to the code; `UnknownError` for a number that is no code. */
export function makeError(code: number, message: string, details: ErrorDetails = {}): StockadeError {
  const Class = classes.get(code) ?? UnknownError;
  return new Class(code, message, details);
}
