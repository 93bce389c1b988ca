// SPDX-License-Identifier: Apache-2.0
// Sizes and durations as people write them, and what is said about arguments that are none.
import { inspect } from "node:util";
import { Code, InvalidArgumentError } from "./errors.js";

/**
 * A number of bytes, or text: a number with K, M, G or T (powers of 1024; "KiB" and "KB" mean the same), such as
 * "256M".
 */
export type Size = number | string;

/** A number of seconds, or text: a number with ms, s, m, h or d, such as "250ms" or "1.5h". */
export type Duration = number | string;

const sizeUnits: Readonly<Record<string, number>> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };
const durationUnits: Readonly<Record<string, number>> = {
  ms: 1,
  "": 1000,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** The most milliseconds that fit when they are converted to microseconds. */
const MS_MAX = Number.MAX_SAFE_INTEGER / 1000;

/** An InvalidArgumentError about one argument, made on this side. */
export function badArgument(name: string, why: string): InvalidArgumentError {
  return new InvalidArgumentError(Code.INVALID_ARGUMENT, `${name}: ${why}`, {
    reason: "FIELD_INVALID",
    fields: [{ field: name, description: why }],
  });
}

/** The word for so many: with an s, unless it is one. */
export function plural(n: number, one: string): string {
  return n === 1 ? one : `${one}s`;
}

function parse(value: number | string, name: string, form: RegExp, kind: string, example: string): [number, string] {
  if (typeof value === "number") {
    if (!Number.isFinite(value) || value < 0) {
      throw badArgument(name, `${value} must be 0 or more`);
    }
    return [value, ""];
  }
  const match = typeof value === "string" ? form.exec(value.trim()) : null;
  if (match === null) {
    throw badArgument(name, `${inspect(value)} must be a ${kind}, such as "${example}"`);
  }
  return [Number(match[1]), (match[2] ?? "").toLowerCase()];
}

/** Bytes of a `Size`. InvalidArgumentError, with `name` as the field, for anything else. */
export function parseSize(value: Size, name = "size"): number {
  const [n, unit] = parse(value, name, /^([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(?:i?b)?|b)?$/i, "size", "256M");
  const bytes = n * (sizeUnits[unit] as number);
  if (!Number.isSafeInteger(Math.round(bytes))) {
    throw badArgument(name, `${value} is too large`);
  }
  return Math.round(bytes);
}

/** Milliseconds of a `Duration`. InvalidArgumentError, with `name` as the field, for anything else. */
export function parseDuration(value: Duration, name = "duration"): number {
  const [n, unit] = parse(value, name, /^([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?$/i, "time", "250ms");
  const ms = n * (durationUnits[unit] as number);
  if (ms > MS_MAX) {
    throw badArgument(name, `${value} is too long`);
  }
  return ms;
}

/** Whole milliseconds of a `Duration`, at least 1 for anything above 0. */
export function wholeMilliseconds(value: Duration, name: string): number {
  return Math.ceil(parseDuration(value, name));
}

/** Time to live of a sandbox; 0n, which leaves it as it is, stands for undefined alone. */
export function lifetimeMs(value: Duration | undefined, name = "ttl"): bigint {
  const ms = value === undefined ? 0 : wholeMilliseconds(value, name);
  if (ms === 0 && value !== undefined) {
    throw badArgument(name, "must be more than 0; omit it for the default");
  }
  return BigInt(ms);
}

/**
 * The options themselves. InvalidArgumentError: they are no object, or one of them has a name that is none of `names`,
 * which has every name that the type knows.
 */
export function knownOptions<T extends object>(options: T, names: Readonly<Record<keyof T, true>>, where = ""): T {
  if (typeof options !== "object" || (options as unknown) === null) {
    throw badArgument(where === "" ? "options" : where, `${inspect(options)} is not an object`);
  }
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(names, name)) {
      const field = where === "" ? name : `${where}.${name}`;
      throw badArgument(field, `no such option; the options are ${Object.keys(names).join(", ")}`);
    }
  }
  return options;
}

/** A copy of an object whose values are text. InvalidArgumentError names the value that is none. */
export function textsOf(
  values: Readonly<Record<string, string>> | undefined,
  name: string,
): Record<string, string> {
  const given: unknown = values ?? {};
  if (typeof given !== "object" || given instanceof Array) {
    throw badArgument(name, `${inspect(given)} is not an object`);
  }
  for (const [key, value] of Object.entries(values ?? {})) {
    if (typeof value !== "string") {
      throw badArgument(`${name}.${key}`, `${inspect(value)} is not a string`);
    }
  }
  return { ...values };
}

/** The list itself. InvalidArgumentError: it is none. */
export function listOf<T>(values: readonly T[] = [], name: string): readonly T[] {
  if (!(values instanceof Array)) {
    throw badArgument(name, `${inspect(values)} is not an array`);
  }
  return values;
}

/** The number itself. InvalidArgumentError: it is 0, which stands for the default in a request. */
export function positive(value: number, name: string): number {
  if (value === 0) {
    throw badArgument(name, "must be more than 0; omit it for the default");
  }
  return value;
}

/** A whole number that fits into 32 bits. InvalidArgumentError, with `name` as the field, for anything else. */
export function count(value: number, name: string): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value > 0xffffffff) {
    throw badArgument(name, `${inspect(value)} must be a whole number from 0 to 4294967295`);
  }
  return value;
}
