// SPDX-License-Identifier: Apache-2.0
// Arguments as fields of a message. What is of another type is refused with its name: the encoder takes undefined as
// "not set", any value as a flag, a number as text, and replaces what is no character.
import { inspect } from "node:util";
import { ScalarType } from "@bufbuild/protobuf";
import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { badArgument } from "./units.js";

const LONE_SURROGATE = /\p{Surrogate}/u;
const SHOWN_MAX = 120;

/** The error for a value of another type. */
export function wrongType(value: unknown, name: string, expected: string): Error {
  const hint = value instanceof Promise ? "; an await is missing" : "";
  const text = inspect(value, { depth: 1, breakLength: Infinity });
  const shown = text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}...` : text;
  return badArgument(name, `${shown} is not ${expected}${hint}`);
}

/** The text itself. InvalidArgumentError: it is none, or has a surrogate without its other half. */
export function textOf(value: unknown, name: string): string {
  if (typeof value !== "string") {
    throw wrongType(value, name, "a string");
  }
  const at = value.search(LONE_SURROGATE);
  if (at >= 0) {
    const code = value.charCodeAt(at).toString(16);
    throw badArgument(name, `\\u${code} at ${at} is half of a surrogate pair, and no character`);
  }
  return value;
}

/** A text that need not be given: "" for undefined. InvalidArgumentError: it is given, and empty. */
export function optionalText(value: string | undefined, name: string): string {
  if (value === "") {
    throw badArgument(name, "must not be empty; omit it for the default");
  }
  return value === undefined ? "" : textOf(value, name);
}

/** Text as UTF-8. InvalidArgumentError as in `textOf`. */
export function utf8(value: unknown, name: string): Uint8Array {
  return new TextEncoder().encode(textOf(value, name));
}

/** A flag: false for undefined. InvalidArgumentError for anything but true and false. */
export function flag(value: unknown, name: string): boolean {
  if (value !== undefined && typeof value !== "boolean") {
    throw wrongType(value, name, "true or false");
  }
  return value ?? false;
}

/** A function that need not be given. InvalidArgumentError: it is none. */
export function callback(value: unknown, name: string): void {
  if (value !== undefined && typeof value !== "function") {
    throw wrongType(value, name, "a function");
  }
}

function checkNumber(value: unknown, name: string, least: number, most: number): void {
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) {
    throw wrongType(value, name, `a whole number from ${least} to ${most}`);
  }
}

function checkScalar(type: ScalarType, value: unknown, name: string): void {
  switch (type) {
    case ScalarType.STRING:
      textOf(value, name);
      break;
    case ScalarType.BOOL:
      if (typeof value !== "boolean") throw wrongType(value, name, "true or false");
      break;
    case ScalarType.BYTES:
      if (!(value instanceof Uint8Array)) throw wrongType(value, name, "a Uint8Array");
      break;
    case ScalarType.UINT32:
      checkNumber(value, name, 0, 2 ** 32 - 1);
      break;
    case ScalarType.INT32:
      checkNumber(value, name, -(2 ** 31), 2 ** 31 - 1);
      break;
    default:
      if (value === undefined || value === null) throw wrongType(value, name, "a number");
  }
}

function checkOne(field: DescField, value: unknown, name: string): void {
  if (field.message !== undefined) {
    if (value !== undefined) checkFields(field.message, value, `${name}.`);
  } else if (field.scalar !== undefined) {
    checkScalar(field.scalar, value, name);
  }
}

function checkField(field: DescField, value: unknown, name: string): void {
  if (field.fieldKind === "list") {
    if (!(value instanceof Array)) throw wrongType(value, name, "an array");
    value.forEach((item, i) => {
      checkOne(field, item, `${name}[${i}]`);
    });
  } else if (field.fieldKind === "map") {
    if (typeof value !== "object" || value === null) throw wrongType(value, name, "an object");
    for (const [key, item] of Object.entries(value)) {
      checkOne(field, item, `${name}.${textOf(key, `a name in ${name}`)}`);
    }
  } else {
    checkOne(field, value, name);
  }
}

/** Throws InvalidArgumentError, which names the field, if a request holds what the encoder would replace or drop. */
export function checkFields(type: DescMessage, request: unknown, where = ""): void {
  if (typeof request !== "object" || request === null) {
    throw wrongType(request, where === "" ? "request" : where.slice(0, -1), "an object");
  }
  const values = new Map<string, unknown>(Object.entries(request));
  for (const member of type.members) {
    const value = values.get(member.localName);
    if (!values.has(member.localName)) {
      continue;
    }
    if (member.kind === "field") {
      checkField(member, value, where + member.localName);
    } else {
      const one = value as { case?: string; value?: unknown } | undefined;
      const field = member.fields.find((f) => f.localName === one?.case);
      if (field !== undefined) checkField(field, one?.value, where + field.localName);
    }
  }
}
