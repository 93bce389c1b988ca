// SPDX-License-Identifier: Apache-2.0
// The credential of a client in a file. Each call reads it, so that a token that is replaced counts at once.
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { badArgument } from "./units.js";

const TOKEN_BYTES_MAX = 8 * 1024;

function firstBytes(path: string): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK); // a FIFO without a writer must not block
  try {
    if (!fstatSync(fd).isFile()) {
      throw new Error("it is no regular file");
    }
    const bytes = Buffer.alloc(TOKEN_BYTES_MAX);
    return bytes.subarray(0, readSync(fd, bytes));
  } finally {
    closeSync(fd);
  }
}

/** The token in the first line of a file. Throws InvalidArgumentError: it cannot be read. */
export function tokenIn(path: string): string {
  let line: string;
  try {
    line = firstBytes(path).toString("latin1").split(/\r?\n/, 1)[0] ?? "";
  } catch (e) {
    throw badArgument("tokenFile", `read the token in ${path}: ${e instanceof Error ? e.message : String(e)}`);
  }
  if (!/^[\x20-\x7e]+$/.test(line)) {
    const why = line === "" ? "is empty" : "has characters that no token has";
    throw badArgument("tokenFile", `the token in ${path} ${why}`);
  }
  return line;
}
