// SPDX-License-Identifier: Apache-2.0
// Templates: kinds of sandboxes, of the host and made from work (`Sandbox.makeTemplate`).
import { chosenClient } from "./jobs.js";
import type { Client } from "./client.js";
import type { CallOptions } from "./call.js";
import { optionalText } from "./fields.js";
import { checkArchive, type Contents, sendTransfer } from "./files.js";
import { TemplateService } from "./gen/stockade/v1/template_service_pb.js";
import type { SandboxTemplate as TemplateMessage } from "./gen/stockade/v1/template_service_pb.js";

/** A kind of sandbox: one of the host, or one that was made from the files of a sandbox. */
export interface SandboxTemplate {
  /** Unique among the templates of the host and of the caller. */
  name: string;
  /** The host's: the configuration lists it. Then what follows `rootWritable` is empty. */
  ofHost: boolean;
  /** The template of the host that its sandboxes have limits, network and user of. */
  hostTemplate: string;
  /** Jobs are root inside. */
  userRoot: boolean;
  /** They may change /usr. */
  rootWritable: boolean;
  /** The template of the sandbox that it was made from. */
  madeOn: string;
  /** That sandbox. */
  sandboxId: string;
  /** Time of its creation. */
  created: Date;
  /** Bytes that it holds besides the files of the host. */
  size: number;
  /** Environment of jobs, where it differs from that of `hostTemplate`. */
  env: Readonly<Record<string, string>>;
  /** Working directory of jobs; "": that of `hostTemplate`. */
  workdir: string;
  /** Digest of its files, in hex: equal ones mean equal files. */
  digest: string;
  /** Who made it, such as `uid:1000`. */
  principal: string;
  /** Who loaded it from an archive, which then says what `madeOn` and `principal` are; "": it was made here. */
  loadedBy: string;
  /** Its data key was forgotten, so nobody can use it; it can be deleted. */
  unreadable: boolean;
}

/** What a message says about a template. */
export function sandboxTemplate(message: TemplateMessage | undefined): SandboxTemplate {
  const stamp = message?.createTime;
  return {
    name: message?.name ?? "",
    ofHost: message?.ofHost ?? false,
    hostTemplate: message?.hostTemplate ?? "",
    userRoot: message?.userRoot ?? false,
    rootWritable: message?.rootWritable ?? false,
    madeOn: message?.madeOn ?? "",
    sandboxId: message?.sandboxId ?? "",
    created: new Date(Number(stamp?.seconds ?? 0n) * 1000 + Math.floor((stamp?.nanos ?? 0) / 1e6)),
    size: Number(message?.bytes ?? 0n),
    env: Object.fromEntries((message?.env ?? []).map((v) => [v.name, v.value])),
    workdir: message?.workdir ?? "",
    digest: message?.digest ?? "",
    principal: message?.principal ?? "",
    unreadable: message?.unreadable ?? false,
    loadedBy: message?.loadedBy ?? "",
  };
}

/**
 * All templates: those of the host first, then the caller's, oldest first. Rejects with UnavailableError if the broker
 * is not there.
 */
export async function* templates(
  options: CallOptions & { client?: Client } = {},
): AsyncGenerator<SandboxTemplate, void, undefined> {
  const { client: given, ...call } = options;
  const client = chosenClient(given);
  let pageToken = "";
  do {
    const page = await client.unary(TemplateService.method.list, { pageSize: 1000, pageToken }, call);
    yield* page.templates.map(sandboxTemplate);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

/**
 * Deletes a template that the caller made; sandboxes of it keep their files. Rejects with NotFoundError, and with
 * FailedPreconditionError if it is the host's.
 */
export async function deleteTemplate(name: string, options: CallOptions & { client?: Client } = {}): Promise<void> {
  const { client: given, ...call } = options;
  const client = chosenClient(given);
  await client.unary(TemplateService.method.delete, { name }, call);
}

/**
 * The bytes of the archive of a template that the caller made. Rejects with NotFoundError, FailedPreconditionError (it
 * is the host's) and ResourceExhaustedError (the caller pushes or loads one already).
 *
 * @example
 * await writeFile("pandas.tar", pushTemplate("pandas"));
 */
export async function* pushTemplate(
  name: string,
  options: CallOptions & { client?: Client } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const { client: given, ...call } = options;
  const client = chosenClient(given);
  for await (const part of client.stream(TemplateService.method.push, { name }, call)) {
    yield part.data;
  }
}

/**
 * Makes a template of an archive. Rejects with AlreadyExistsError, InvalidArgumentError (no broker pushed the archive,
 * or it was changed), DataLossError (it ends early), FailedPreconditionError (the host has not the template below it,
 * or the archive is of a later version) and ResourceExhaustedError.
 */
export async function loadTemplate(
  archive: Contents,
  options: CallOptions & {
    /** Of the new template. Default: that in the archive. */
    name?: string;
    /** Replace the template of this name that the caller made, when the new one is complete. */
    replace?: boolean;
    client?: Client;
  } = {},
): Promise<SandboxTemplate> {
  const { client, name, replace = false, ...call } = options;
  checkArchive(archive);
  const request = { name: optionalText(name, "name"), replace };
  const last = await sendTransfer(chosenClient(client), TemplateService.method.load, request, archive, call);
  return sandboxTemplate(last.template);
}
