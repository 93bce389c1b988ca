// SPDX-License-Identifier: Apache-2.0
// Changes of the files of a sandbox (`Files.watch`).
import { FileChange } from "./gen/stockade/v1/file_service_pb.js";
import type { FileEvent as EventMessage, FileServiceWatchResponse } from "./gen/stockade/v1/file_service_pb.js";
import type { MessageStream } from "./stream.js";

/** A change that `Files.watch` reports. */
export interface FileEvent {
  /**
   * What happened. "overflow": changes before this were lost, because there were too many: list the folder again.
   * "unwatched": in some folders nothing is reported, because there are too many, or they are not readable.
   */
  change: "create" | "write" | "remove" | "rename" | "chmod" | "overflow" | "unwatched" | "unknown";
  /** The path below the folder; "." is the folder itself. Of a file that is watched: its name. */
  path: string;
  /** The same as bytes, for names that are not UTF-8. */
  pathBytes: Uint8Array;
  /** Of a renaming: the path before. */
  before: string;
  /** True if it is a folder. */
  folder: boolean;
}

const changes: Readonly<Record<number, FileEvent["change"]>> = {
  [FileChange.CREATE]: "create",
  [FileChange.WRITE]: "write",
  [FileChange.REMOVE]: "remove",
  [FileChange.RENAME]: "rename",
  [FileChange.CHMOD]: "chmod",
};

function fileEvent(change: FileEvent["change"], message?: EventMessage): FileEvent {
  const pathBytes = message?.path ?? new Uint8Array(0);
  return {
    change,
    path: new TextDecoder().decode(pathBytes),
    pathBytes,
    before: new TextDecoder().decode(message?.before),
    folder: message?.folder ?? false,
  };
}

/** Changes of files, as an async iterator. Leaving the loop ends the watch. */
export class FileWatch implements AsyncIterableIterator<FileEvent, undefined> {
  /** Number of folders that were watched at the beginning. */
  readonly folders: number;
  readonly #stream: MessageStream<FileServiceWatchResponse>;
  #events: FileEvent[] = []; // the next one is the last
  #unwatched = 0n;

  /** @internal */
  constructor(stream: MessageStream<FileServiceWatchResponse>, folders: number) {
    this.#stream = stream;
    this.folders = folders;
  }

  /** The next change. Rejects with NotFoundError or CancelledError if the sandbox is deleted. */
  async next(): Promise<IteratorResult<FileEvent, undefined>> {
    for (;;) {
      const value = this.#events.pop();
      if (value !== undefined) {
        return { done: false, value };
      }
      const message = await this.#stream.next();
      if (message.done === true) {
        return { done: true, value: undefined };
      }
      this.#take(message.value);
    }
  }

  /** Ends the watch. Never rejects. */
  async return(): Promise<IteratorResult<FileEvent, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** Ends the watch; the reader gets the end of the iteration. */
  close(): void {
    this.#events = [];
    this.#stream.cancel();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #take(message: FileServiceWatchResponse): void {
    const events = message.overflow ? [fileEvent("overflow")] : [];
    if (message.unwatched > this.#unwatched) {
      events.push(fileEvent("unwatched"));
    }
    this.#unwatched = message.unwatched;
    events.push(...message.events.map((event) => fileEvent(changes[event.change] ?? "unknown", event)));
    this.#events = events.reverse();
  }
}
