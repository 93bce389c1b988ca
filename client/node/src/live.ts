// SPDX-License-Identifier: Apache-2.0
// The variables of contexts at one moment.
import { optionalText, wrongType } from "./fields.js";
import type { Checkpoint as Message } from "./gen/stockade/v1/code_service_pb.js";

/** The variables of a python context at one moment. See `Context.checkpoint`. */
export interface Checkpoint {
  /** Unique in its sandbox. */
  name: string;
  /** The sandbox that it belongs to. */
  sandboxId: string;
  /** The context that it was made of. */
  contextId: string;
  /** python. */
  language: string;
  /** Number of cells that the interpreter had run. */
  executionCount: number;
  /** Private memory of the interpreter at that moment in bytes: the most that it costs. */
  memory: number;
  /** When it was made. */
  created: Date;
  /** Why it cannot be used any more; "": it can. */
  lost: string;
}

/** @internal */
export function checkpointOf(message: Message | undefined): Checkpoint {
  const stamp = message?.createTime;
  return {
    name: message?.name ?? "",
    sandboxId: message?.sandboxId ?? "",
    contextId: message?.contextId ?? "",
    language: message?.language ?? "",
    executionCount: message?.executionCount ?? 0,
    memory: Number(message?.memoryBytes ?? 0n),
    created: new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6)),
    lost: message?.lost ?? "",
  };
}

/** @internal */
export function checkpointName(checkpoint: Checkpoint | string): string {
  const name: unknown = typeof checkpoint === "string" ? checkpoint : (checkpoint as Partial<Checkpoint> | null)?.name;
  if (typeof name !== "string") {
    throw wrongType(checkpoint, "checkpoint", "a Checkpoint or its name");
  }
  return optionalText(name, "checkpoint");
}
