// SPDX-License-Identifier: Apache-2.0
// Starts a process of a sandbox, once, also when the connection is lost meanwhile.
import { randomBytes } from "node:crypto";
import type { Client } from "./client.js";
import { AlreadyExistsError, ConnectionLostError, UnavailableError } from "./errors.js";
import { ProcessService } from "./gen/stockade/v1/process_service_pb.js";
import { JobMode } from "./gen/stockade/v1/simulation_pb.js";
import type { TransactionPolicy as PolicyNumber } from "./gen/stockade/v1/transaction_service_pb.js";
import { collectorOf, commandOf, controlOf, limitsOf } from "./jobs.js";
import type { CallControl, CommandOptions } from "./jobs.js";
import { Process } from "./process.js";
import type { Size } from "./units.js";

// How a process of a sandbox is started.
export interface StartMode {
  stdinOpen: boolean;
  foreground: boolean;
  transaction?: PolicyNumber;
  mode?: JobMode;
  answers?: { destination: string; reply: Uint8Array }[];
}

// When the connection is lost before the process is known, the same key is sent again to the same broker: it was
// never begun and begins now, or the broker answers which process the first request made.
export async function startProcess(
  client: Client,
  sandboxId: string,
  args: readonly string[],
  options: CommandOptions & CallControl,
  inline: Uint8Array,
  { stdinOpen, ...mode }: StartMode,
  attach: (processId: string, options: CallControl & { keep?: Size }) => Promise<Process>,
): Promise<Process> {
  const request = {
    sandboxId,
    ...mode,
    command: commandOf(args, options, inline, stdinOpen),
    ...limitsOf(options),
  };
  const simulates = mode.mode === JobMode.SIMULATE; // it ends with its call, so it is not sent again
  const key = simulates ? {} : { idempotencyKey: randomBytes(16).toString("hex") };
  const control = { ...key, ...controlOf(options) };
  const begin = (): Promise<Process> => {
    const stream = client.stream(ProcessService.method.start, request, control);
    return Process.begin({ client, stream, collector: collectorOf(options, args), detachable: !simulates });
  };
  if (simulates) return begin();
  const since = performance.now();
  let lost: ConnectionLostError;
  try {
    return await begin();
  } catch (e) {
    if (!(e instanceof ConnectionLostError) || !(await client.isSameBroker(since).catch(() => false))) {
      throw e;
    }
    lost = e;
  }
  try {
    return await begin();
  } catch (e) {
    if (e instanceof UnavailableError) {
      throw lost; // the first attempt may have been executed
    }
    const processId = e instanceof AlreadyExistsError ? e.info["process_id"] : undefined;
    if (processId === undefined) {
      throw e;
    }
    const { deadline, signal, keep } = options;
    return attach(processId, {
      ...(deadline === undefined ? {} : { deadline }),
      ...(signal === undefined ? {} : { signal }),
      ...(keep === undefined ? {} : { keep }),
    });
  }
}
