// Sizes and durations as people write them.
import { Code, InvalidArgumentError } from "./errors.js";

/**
 * A number of bytes, or text: a number with K, M, G or T (powers of 1024; "KiB" and "KB" mean the same), such as
 * "256M".
 */
export type Size = number | string;

/** A number of seconds, or text: a number with us, ms, s, m, h or d, such as "250ms" or "1.5h". */
export type Duration = number | string;

const sizeUnits: Readonly<Record<string, number>> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };
const durationUnits: Readonly<Record<string, number>> = {
  us: 0.001,
  ms: 1,
  "": 1000,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** An InvalidArgumentError about one argument, made on this side. */
export function badArgument(name: string, why: string): InvalidArgumentError {
  return new InvalidArgumentError(Code.INVALID_ARGUMENT, `${name}: ${why}`, {
    reason: "FIELD_INVALID",
    fields: [{ field: name, description: why }],
  });
}

function parse(value: number | string, name: string, form: RegExp, example: string): [number, string] {
  if (typeof value === "number") {
    if (!Number.isFinite(value) || value < 0) {
      throw badArgument(name, `${value} is not a number from 0 on`);
    }
    return [value, ""];
  }
  const match = typeof value === "string" ? form.exec(value.trim()) : null;
  if (match === null) {
    throw badArgument(name, `${JSON.stringify(value)} is not one such as "${example}"`);
  }
  return [Number(match[1]), (match[2] ?? "").toLowerCase()];
}

/** Bytes of a `Size`. InvalidArgumentError, with `name` as the field, for anything else. */
export function parseSize(value: Size, name = "size"): number {
  const [n, unit] = parse(value, name, /^([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(?:i?b)?|b)?$/i, "256M");
  const bytes = n * (sizeUnits[unit] as number);
  if (!Number.isSafeInteger(Math.round(bytes))) {
    throw badArgument(name, `${value} is too large`);
  }
  return Math.round(bytes);
}

/** Milliseconds of a `Duration`. InvalidArgumentError, with `name` as the field, for anything else. */
export function parseDuration(value: Duration, name = "duration"): number {
  const [n, unit] = parse(value, name, /^([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|d)?$/i, "250ms");
  return n * (durationUnits[unit] as number);
}

/** Whole milliseconds of a `Duration`, at least 1 for anything above 0. */
export function wholeMilliseconds(value: Duration, name: string): number {
  const ms = Math.ceil(parseDuration(value, name));
  if (!Number.isSafeInteger(ms)) {
    throw badArgument(name, `${value} is too long`);
  }
  return ms;
}
