// SPDX-License-Identifier: Apache-2.0
// Calls that put bytes into a queue of the broker's: while it is full nothing of them is taken, so they are made again.
import { ResourceExhaustedError } from "./errors.js";

const RETRY_FIRST_MS = 5;
const RETRY_MAX_MS = 200;

/** Makes the call until its bytes are taken. */
export async function untilTaken(call: () => Promise<unknown>): Promise<void> {
  for (let wait = RETRY_FIRST_MS; ; wait = Math.min(wait * 2, RETRY_MAX_MS)) {
    try {
      await call();
      return;
    } catch (e) {
      if (!(e instanceof ResourceExhaustedError)) {
        throw e;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
