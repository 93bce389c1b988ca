// SPDX-License-Identifier: Apache-2.0
// Files of a sandbox against a real broker.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createReadStream, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as errors from "../../src/errors.js";
import { Sandbox } from "../../src/sandbox.js";
import { client, MB, sh, skip } from "./shared.js";

test("what is refused is an error of its kind", { skip }, async () => {
  await using sbx = await Sandbox.create({ client });
  const { files } = sbx;
  await assert.rejects(files.read("no"), (e) => e instanceof errors.NotFoundError && e.reason === "FILE_NOT_FOUND");
  await assert.rejects(files.write("/etc/passwd", "x"), errors.PermissionDeniedError);
  await assert.rejects(files.read("/dev/zero"), errors.FailedPreconditionError);
  await assert.rejects(files.stat(""), errors.InvalidArgumentError);
  await assert.rejects(files.write("x", [1] as never), errors.InvalidArgumentError);
  await assert.rejects(files.write("x", 1 as never), errors.InvalidArgumentError);
  await assert.rejects(files.write("x", "", { paranets: true } as never), errors.InvalidArgumentError);
  await files.write("full", "x".repeat(100));
  await assert.rejects(files.read("full", { maxBytes: 99 }), errors.DataLossError);
  await assert.rejects(files.write("big", createReadStream("/nowhere")), { code: "ENOENT" });
  assert.equal(await files.exists("x"), false);
  assert.equal(await files.exists("big"), false);
});

test("a write of a source that is idle ends with its sandbox", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  let asked = (): void => undefined;
  const idle = new Promise<void>((resolve) => (asked = resolve));
  async function* source(): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(MB);
    asked();
    await new Promise(() => undefined);
  }
  const refused = assert.rejects(sbx.files.write("a", source()), errors.StockadeError);
  await idle;
  await sbx.delete();
  await refused;
});

test("files are written, read, listed and removed", { skip }, async () => {
  await using sbx = await Sandbox.create({ client });
  const { files } = sbx;
  const first = await files.write("a/b.txt", "grüße", { parents: true, mode: 0o600 });
  assert.deepEqual([first.path, first.type, first.size, first.mode], ["/home/agent/a/b.txt", "file", 7, 0o600]);
  assert.equal(await files.readText("a/b.txt"), "grüße");
  assert.deepEqual(await files.read("a/b.txt", { offset: 2, length: 3 }), Buffer.from("grüße").subarray(2, 5));
  assert.equal((await sbx.run(["cat", "a/b.txt"])).stdout, "grüße");
  await assert.rejects(files.write("a/b.txt", "", { onlyIfAbsent: true }), errors.AlreadyExistsError);
  const second = await files.write("a/b.txt", "2", { ifVersion: first.version });
  await assert.rejects(files.write("a/b.txt", "3", { ifVersion: first.version }), errors.AbortedError);
  assert.equal((await files.stat("a/b.txt")).version, second.version);
  const big = randomBytes(3 * MB);
  assert.equal((await files.write("big", big)).size, big.length);
  assert.deepEqual(await files.read("big"), big);
  const parts = Array.from({ length: 10 }, (_, i) => Buffer.alloc(100_000, i));
  assert.equal((await files.write("parts", parts)).size, 1_000_000);
  const odd = Buffer.from([0x61, 0x2f, 0xff]);
  await files.write(odd, "odd");
  const names: number[][] = [];
  for await (const file of files.list("a")) {
    names.push([...file.pathBytes]);
  }
  assert.deepEqual(names, [[...Buffer.from("b.txt")], [0xff]]);
  assert.equal((await files.copy("a", "c")).type, "folder");
  assert.equal((await files.move("c", "d")).path, "/home/agent/d");
  const found: string[] = [];
  for await (const file of files.list(".", { depth: 2, glob: "*.txt" })) {
    found.push(file.path);
  }
  assert.deepEqual(found, ["a/b.txt", "d/b.txt"]);
  assert.equal((await files.setMode("d", 0o700)).mode, 0o700);
  assert.equal((await files.makeDir("e/f", { parents: true })).type, "folder");
  const full = (e: unknown): boolean => e instanceof errors.FailedPreconditionError && e.reason === "NOT_EMPTY";
  await assert.rejects(files.remove("d"), full);
  assert.equal(await files.remove("d", { recursive: true }), 3);
  assert.equal(await files.remove("d", { missingOk: true }), 0);
  assert.equal(await files.exists("e"), true);
});

test("folders and archives go and come back", { skip }, async () => {
  const here = mkdtempSync(join(tmpdir(), "stockade-files-"));
  try {
    const tree = join(here, "tree");
    mkdirSync(join(tree, "a/b"), { recursive: true });
    writeFileSync(join(tree, "a/big"), randomBytes(3 * MB));
    writeFileSync(Buffer.concat([Buffer.from(`${tree}/a/b/`), Buffer.from([0xff])]), "odd");
    symlinkSync("a/big", join(tree, "l"));
    await using sbx = await Sandbox.create({ client });
    const { files } = sbx;
    await assert.rejects(files.uploadFolder(join(tree, "a/big"), "x"), { code: "ENOTDIR" });
    await assert.rejects(files.uploadFolder(tree, "x", { bytesMax: 1000 }), errors.ResourceExhaustedError);
    await assert.rejects(files.uploadArchive("x", Buffer.alloc(10240, "x")), errors.InvalidArgumentError);
    assert.equal(await files.uploadFolder(tree, "up/x"), 5);
    assert.equal((await sbx.run(sh("wc -c < up/x/l"))).stdout.trim(), String(3 * MB));
    await assert.rejects(files.downloadFolder("up/x/a/big", join(here, "no")), errors.FailedPreconditionError);
    assert.equal(await files.downloadFolder("up", join(here, "back")), 6);
    execFileSync("diff", ["-r", "--no-dereference", tree, join(here, "back/x")]);
    await sbx.run(sh("ln -s /etc up/out"));
    await assert.rejects(
      files.downloadFolder("up", join(here, "hostile")),
      (e) => e instanceof errors.InvalidArgumentError && e.reason === "LINK_LEADS_OUT",
    );
  } finally {
    rmSync(here, { recursive: true });
  }
});

test("compressed archives are bounded by their ratio", { skip }, async () => {
  await using sbx = await Sandbox.create({ client });
  const { files } = sbx;
  await files.write("d/zeros", Buffer.alloc(8 * MB), { parents: true });
  const parts: Uint8Array[] = [];
  for await (const part of files.downloadArchive("d", { compressed: true })) {
    parts.push(part);
  }
  const small = Buffer.concat(parts);
  assert.ok(small.length < 4096);
  await assert.rejects(files.uploadArchive("e", small, { compressed: true }), errors.ResourceExhaustedError);
  await assert.rejects(files.uploadArchive("e", small), errors.DataLossError);
  assert.equal(await files.uploadArchive("e", small, { compressed: true, ratioMax: 100_000 }), 1);
  assert.equal((await files.stat("e/zeros")).size, 8 * MB);
});

test("changes are reported as they happen", { skip }, async () => {
  await using sbx = await Sandbox.create({ client });
  await assert.rejects(sbx.files.watch("no"), errors.NotFoundError);
  await sbx.files.makeDir("d/e", { parents: true });
  const watch = await sbx.files.watch("d", { recursive: true });
  assert.equal(watch.folders, 2);
  await sbx.run(sh("echo > d/f; mv d/f d/e/g; rm -r d"));
  const seen: string[] = [];
  for await (const event of watch) {
    seen.push([event.change, event.before, event.path].join(" "));
  }
  for (const event of ["create  f", "rename f e/g", "remove  e/g", "remove  e"]) {
    assert.ok(seen.includes(event), seen.join());
  }
  assert.equal(seen.at(-1), "remove  .");
  const other = await sbx.files.watch();
  other.close();
  assert.equal((await other.next()).done, true);
});

test("a full disk is reported by the write", { skip }, async () => {
  await using sbx = await Sandbox.create({ client, limits: { disk: "2M" } });
  const parts = Array.from({ length: 100 }, () => Buffer.alloc(100_000));
  const full = (e: unknown): boolean => e instanceof errors.ResourceExhaustedError && e.reason === "DISK_FULL";
  await assert.rejects(sbx.files.write("big", parts), full);
  assert.equal(await sbx.files.exists("big"), false);
});
