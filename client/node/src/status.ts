// SPDX-License-Identifier: Apache-2.0
// From the status at the end of a call to the error that is thrown.
import { fromBinary } from "@bufbuild/protobuf";
import { ConnectionLostError, ProtocolError, codeName, makeError } from "./errors.js";
import type { ErrorDetails, StockadeError } from "./errors.js";
import { BadRequestSchema, ErrorInfoSchema, QuotaFailureSchema, RetryInfoSchema } from "./gen/stockade/v1/wire_pb.js";
import { checkWire } from "./scan.js";

/** How a call ended, as it came over the wire. */
export interface WireStatus {
  code: number;
  message: string;
  details: readonly { typeUrl: string; value: Uint8Array }[];
}

/** The longest delay that is accepted from a broker, milliseconds; a longer one is shortened to this one. */
const RETRY_MS_MAX = 3_600_000;

const TYPE_PREFIX = "type.googleapis.com/stockade.v1.";

/** Reads the details that this client knows; others are left alone. Throws ProtocolError for bytes that are none. */
function readDetails(status: WireStatus): ErrorDetails {
  const out: ErrorDetails = {};
  for (const { typeUrl, value } of status.details) {
    const type = typeUrl.startsWith(TYPE_PREFIX) ? typeUrl.slice(TYPE_PREFIX.length) : "";
    if (type === "ErrorInfo") {
      checkWire(ErrorInfoSchema, value);
      const info = fromBinary(ErrorInfoSchema, value);
      out.reason = info.reason;
      out.info = info.metadata;
    } else if (type === "BadRequest") {
      checkWire(BadRequestSchema, value);
      const bad = fromBinary(BadRequestSchema, value);
      out.fields = bad.fieldViolations.map(({ field, description }) => ({ field, description }));
    } else if (type === "QuotaFailure") {
      checkWire(QuotaFailureSchema, value);
      const quota = fromBinary(QuotaFailureSchema, value);
      out.quotas = quota.violations.map(({ subject, description }) => ({ subject, description }));
    } else if (type === "RetryInfo") {
      checkWire(RetryInfoSchema, value);
      out.retryAfter = Math.min(fromBinary(RetryInfoSchema, value).retryDelayMs, RETRY_MS_MAX) / 1000;
    }
  }
  return out;
}

/** The error that a status other than OK stands for. */
export function errorFromStatus(status: WireStatus, method: string): StockadeError {
  let details: ErrorDetails;
  try {
    details = readDetails(status);
  } catch (e) {
    details = { reason: "BAD_DETAILS", cause: e };
  }
  const text = status.message === "" ? `${method}: ${codeName(status.code)}` : status.message;
  return makeError(status.code, text, { ...details, method });
}

/** The error of a lost call, which may or may not have been executed. */
export function connectionLost(path: string, error: Error): StockadeError {
  if (error instanceof ProtocolError) {
    return new ProtocolError(`${path}: ${error.message}`, { method: path, cause: error });
  }
  const text = `${path}: the connection was lost (${error.message}); it may have been executed`;
  return new ConnectionLostError(text, { method: path, cause: error });
}
