// SPDX-License-Identifier: Apache-2.0
// A look at serialized bytes before they become objects: the broker's bytes are not trusted either.
//
// A message of 4 MiB can hold two million empty sub-messages, which would become hundreds of megabytes of objects, and
// nesting can be as deep as its length. So every message is walked once along its descriptor: lengths that lie, depth
// and the number of fields are checked, nothing is allocated.
import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { ProtocolError } from "./errors.js";

/** Nested messages. */
export const DEPTH_MAX = 32;
/** Fields of one message on the wire, those of its sub-messages included. A full page of sandboxes has about 70,000. */
export const ELEMENTS_MAX = 262_144;

interface Walk {
  bytes: Uint8Array;
  elements: number;
}

function varint(w: Walk, at: number, end: number): { value: number; next: number } {
  let value = 0;
  let factor = 1;
  for (let i = 0; i < 10; i++) {
    if (at + i >= end) {
      throw new ProtocolError("message: ends within a number");
    }
    const byte = w.bytes[at + i] as number;
    value += (byte & 0x7f) * factor;
    factor *= 128;
    if (byte < 0x80) {
      return { value, next: at + i + 1 };
    }
  }
  throw new ProtocolError("message: a number is longer than 10 bytes");
}

// What the fields of a message are: those of its descriptor, or key = 1 and value = 2 of a map's entry.
type Shape = (number: number) => DescField | DescMessage | undefined;

function shapeOf(type: DescMessage): Shape {
  return (number) => type.fields.find((f) => f.number === number);
}

function nothing(): undefined {
  return undefined;
}

function childShape(f: DescField | DescMessage | undefined): Shape | undefined {
  if (f === undefined) {
    return undefined;
  }
  if (f.kind === "message") {
    return shapeOf(f);
  }
  if (f.fieldKind === "map") {
    const value = f.mapKind === "message" ? f.message : undefined;
    return value === undefined ? nothing : (number) => (number === 2 ? value : undefined);
  }
  return f.message === undefined ? undefined : shapeOf(f.message);
}

function walk(w: Walk, shape: Shape, from: number, end: number, depth: number): void {
  if (depth > DEPTH_MAX) {
    throw new ProtocolError(`message: nested more than ${DEPTH_MAX} deep`);
  }
  let at = from;
  while (at < end) {
    countElements(w, 1);
    const tag = varint(w, at, end);
    const number = Math.floor(tag.value / 8);
    if (number < 1 || tag.value > 0xffffffff) {
      throw new ProtocolError(`message: field number ${number} is none`);
    }
    at = field(w, shape, number, tag.value % 8, tag.next, end, depth);
  }
}

function countElements(w: Walk, n: number): void {
  w.elements += n;
  if (w.elements > ELEMENTS_MAX) {
    throw new ProtocolError(`message: more than ${ELEMENTS_MAX} fields`);
  }
}

function field(
  w: Walk,
  shape: Shape,
  number: number,
  wireType: number,
  at: number,
  end: number,
  depth: number,
): number {
  switch (wireType) {
    case 0:
      return varint(w, at, end).next;
    case 1:
    case 5: {
      const next = at + (wireType === 1 ? 8 : 4);
      if (next > end) {
        throw new ProtocolError("message: ends within a number");
      }
      return next;
    }
    case 2: {
      const { value: length, next } = varint(w, at, end);
      if (length > end - next) {
        throw new ProtocolError("message: a length points past its end");
      }
      lengthDelimited(w, shape(number), next, next + length, depth);
      return next + length;
    }
    default:
      throw new ProtocolError(`message: wire type ${wireType} is not used`);
  }
}

function lengthDelimited(
  w: Walk,
  f: DescField | DescMessage | undefined,
  from: number,
  end: number,
  depth: number,
): void {
  const shape = childShape(f);
  if (shape !== undefined) {
    walk(w, shape, from, end, depth + 1);
  } else if (f?.kind === "field" && f.fieldKind === "list" && f.packed) {
    countElements(w, end - from);
  }
}

/** Throws ProtocolError for bytes that are no well-formed message within the bounds. */
export function checkWire(type: DescMessage, bytes: Uint8Array): void {
  walk({ bytes, elements: 0 }, shapeOf(type), 0, bytes.length, 0);
}
