// SPDX-License-Identifier: Apache-2.0
// Volumes against a real broker.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as errors from "../../src/errors.js";
import { run } from "../../src/jobs.js";
import { Sandbox } from "../../src/sandbox.js";
import { Volume } from "../../src/volumes.js";
import { skip, client, sh } from "./shared.js";

async function hasDisks(): Promise<boolean> {
  try {
    await (await Volume.create("probe", { size: "1M", client })).delete();
    return true;
  } catch (error) {
    assert.ok(error instanceof errors.FailedPreconditionError);
    return false;
  }
}

test("what is wrong is refused", { skip }, async () => {
  await assert.rejects(Volume.connect("none", { client }), errors.NotFoundError);
  await assert.rejects(run(["true"], { volumes: { "/data": "none" }, client }), errors.NotFoundError);
  await assert.rejects(run(["true"], { volumes: { "/data": "none:x" }, client }), errors.InvalidArgumentError);
  await assert.rejects(Volume.create("a/b", { client }), errors.InvalidArgumentError);
});

test("files stay, and are shared", { skip }, async (t) => {
  if (!(await hasDisks())) {
    t.skip("no disks here");
    return;
  }
  const volume = await Volume.create("data", { size: "8M", inodes: 100, client });
  try {
    await assert.rejects(Volume.create("data", { client }), errors.AlreadyExistsError);
    assert.deepEqual([volume.info.size, volume.info.inodes], [8 << 20, 100]);
    const names: string[] = [];
    for await (const { name } of Volume.list({ client })) {
      names.push(name);
    }
    assert.deepEqual(names, ["data"]);
    await run(sh("echo hi > /data/A"), { volumes: { "/data": "data" }, client });
    await using box = await Sandbox.create({ volumes: { "/m": "data:ro" }, client });
    assert.deepEqual(box.info.volumes, { "/m": "data:ro" });
    assert.equal((await box.run(["cat", "/m/A"])).stdout, "hi\n");
    assert.notEqual((await box.run(["touch", "/m/B"])).exitCode, 0);
    assert.equal((await volume.refresh()).sandboxes, 1);
    await assert.rejects(volume.delete(), errors.FailedPreconditionError);
    assert.equal(await volume.files.readText("/A"), "hi\n");
    await volume.files.write("b/B", new Uint8Array(3_000_000), { parents: true });
    assert.equal((await volume.files.stat("/b/B")).size, 3_000_000);
    await assert.rejects(volume.files.stat("/c"), errors.NotFoundError);
    const { sandboxes, used, usedInodes } = await volume.refresh();
    assert.deepEqual([sandboxes, usedInodes], [2, 3]);
    assert.ok(used !== null && used >= 3_000_000);
  } finally {
    await volume.delete({ force: true });
  }
  await assert.rejects(volume.refresh(), errors.NotFoundError);
});
