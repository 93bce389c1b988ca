// SPDX-License-Identifier: Apache-2.0
// Volumes: folders with a quota that outlive sandboxes.
import type { Client } from "./client.js";
import { Files } from "./files.js";
import { VolumeService } from "./gen/stockade/v1/volume_service_pb.js";
import type { Volume as VolumeMessage } from "./gen/stockade/v1/volume_service_pb.js";
import { controlOf, controlOnly, chosenClient, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { count, knownOptions, parseSize, positive } from "./units.js";
import type { Size } from "./units.js";

/** Options of `Volume.create`. */
export interface VolumeOptions extends CallControl {
  /** Bytes of its files, or "10G". Default: 1 GiB. */
  size?: Size;
  /** Files and folders. Default: one for every 16 KiB. */
  inodes?: number;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

/** A volume, as the broker describes it. */
export interface VolumeInfo {
  /** Unique among the caller's volumes. */
  name: string;
  /** Bytes that its files may have. */
  size: number;
  /** Files and folders that it may have. */
  inodes: number;
  /** Time of its creation. */
  created: Date;
  /** Number of sandboxes that have it now. */
  sandboxes: number;
  /** Bytes of its files and folders; null: not known, such as by `list` before the volume is used. */
  used: number | null;
  /** Number of files and folders; null: not known. */
  usedInodes: number | null;
}

function volumeInfo(message: VolumeMessage | undefined): VolumeInfo {
  const stamp = message?.createTime;
  return {
    name: message?.name ?? "",
    size: Number(message?.bytes ?? 0n),
    inodes: Number(message?.inodes ?? 0n),
    created: new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6)),
    sandboxes: message?.sandboxes ?? 0,
    used: message?.use === undefined ? null : Number(message.use.bytes),
    usedInodes: message?.use === undefined ? null : Number(message.use.inodes),
  };
}

/**
 * A folder with a quota, to be mounted in sandboxes; it stays until it is deleted.
 *
 * @example
 * await Volume.create("data", { size: "10G" });
 * await run(["touch", "/data/hello"], { volumes: { "/data": "data" } });
 */
export class Volume {
  readonly #client: Client;
  #info: VolumeInfo;

  private constructor(client: Client, info: VolumeInfo) {
    this.#client = client;
    this.#info = info;
  }

  /**
   * Makes a volume, which is empty. Rejects with AlreadyExistsError, ResourceExhaustedError (a quota, or the host's
   * disk) and FailedPreconditionError (the host cannot enforce quotas).
   */
  static async create(name: string, options: VolumeOptions = {}): Promise<Volume> {
    knownOptions(options, { ...OPTIONS.control, size: true, inodes: true, client: true });
    const client = chosenClient(options.client);
    const request = {
      name,
      bytes: BigInt(options.size === undefined ? 0 : positive(parseSize(options.size), "size")),
      inodes: BigInt(options.inodes === undefined ? 0 : positive(count(options.inodes, "inodes"), "inodes")),
    };
    const { volume } = await client.unary(VolumeService.method.create, request, controlOf(options));
    return new Volume(client, volumeInfo(volume));
  }

  /** Finds an existing volume. Rejects with NotFoundError. */
  static async connect(name: string, options: { client?: Client } & CallControl = {}): Promise<Volume> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    const { volume } = await client.unary(VolumeService.method.get, { name }, controlOf(options));
    return new Volume(client, volumeInfo(volume));
  }

  /** The caller's volumes, oldest first. Rejects with a StockadeError. */
  static async *list(
    options: { client?: Client } & CallControl = {},
  ): AsyncGenerator<VolumeInfo, void, undefined> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    let pageToken = "";
    do {
      const page = await client.unary(VolumeService.method.list, { pageSize: 1000, pageToken }, controlOf(options));
      yield* page.volumes.map(volumeInfo);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Its name, unique among the caller's volumes. */
  get name(): string {
    return this.#info.name;
  }

  /** The last state that the broker sent. */
  get info(): VolumeInfo {
    return this.#info;
  }

  /** Requests its state again. Rejects with NotFoundError if it was deleted. */
  async refresh(options: CallControl = {}): Promise<VolumeInfo> {
    const { volume } = await this.#client.unary(VolumeService.method.get, { name: this.name }, controlOnly(options));
    this.#info = volumeInfo(volume);
    return this.#info;
  }

  /**
   * Its files, without a sandbox of yours: read, write, list and change them. The root of the volume is "/". The broker
   * makes a sandbox for the operations, which counts towards your quota and ends about a minute after the last one.
   */
  get files(): Files {
    return new Files(this.#client, `volume:${this.name}`);
  }

  /**
   * Removes it with all that it holds. Rejects with FailedPreconditionError if a sandbox has it; with `force` those
   * sandboxes are deleted, too.
   */
  async delete(options: { force?: boolean } & CallControl = {}): Promise<void> {
    knownOptions(options, { ...OPTIONS.control, force: true });
    const request = { name: this.name, force: options.force ?? false };
    await this.#client.unary(VolumeService.method.delete, request, controlOf(options));
  }
}
