// SPDX-License-Identifier: Apache-2.0
// Cells of code against a real broker.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runCode } from "../../src/code.js";
import * as errors from "../../src/errors.js";
import { Sandbox } from "../../src/sandbox.js";
import { skip, client } from "./shared.js";

test("unknown languages and contexts are refused", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  await assert.rejects(sbx.runCode("1", { language: "cobol" as "bash" }), errors.InvalidArgumentError);
  await assert.rejects(sbx.runCode("1", { context: "0".repeat(32) }), errors.NotFoundError);
  await sbx.delete();
});

test("what cannot be kept is refused", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  const context = await sbx.createContext();
  await context.run("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()");
  await assert.rejects(context.checkpoint(), errors.FailedPreconditionError);
  await assert.rejects(context.restore("none"), errors.NotFoundError);
  await assert.rejects(sbx.deleteCheckpoint("none"), errors.NotFoundError);
  await sbx.delete();
});

test("variables are kept, restored and forked", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  const context = await sbx.createContext();
  await context.run("x = [1]");
  const before = await context.checkpoint("before");
  assert.deepEqual([before.name, before.executionCount, before.lost], ["before", 1, ""]);
  await context.run("x.append(2)");
  assert.equal((await (await context.fork()).run("x")).text, "[1, 2]");
  await context.restore(before);
  assert.equal((await context.run("x")).text, "[1]");
  assert.deepEqual((await sbx.checkpoints()).map((c) => c.name), ["before"]);
  await sbx.deleteCheckpoint(before);
  assert.deepEqual(await sbx.checkpoints(), []);
  await sbx.delete();
});

test("a cell alone has output, results and a bill", { skip }, async () => {
  const done = await runCode("print('a')\n6 * 7", { client });
  assert.deepEqual([done.status, done.stdout, done.text, done.executionCount], ["ok", "a\n", "42", 1]);
  assert.equal(done.results[0]?.main, true);
});

test("contexts keep their variables, are interrupted and restarted", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  await sbx.runCode("x = 41");
  assert.equal((await sbx.runCode("x + 1")).text, "42");
  const context = await sbx.createContext({ cwd: "/tmp", env: { E: "v" } });
  const failed = await context.run("x");
  assert.deepEqual([failed.status, failed.error?.name], ["error", "NameError"]);
  assert.equal((await context.run("import os; os.getcwd() + os.environ['E']")).text, "'/tmpv'");
  const stopped = await context.run("print('go')\nwhile True: pass", { onStdout: () => context.interrupt() });
  assert.equal(stopped.status, "interrupted");
  await context.restart();
  assert.equal((await context.run("'os' in globals()")).text, "False");
  assert.deepEqual((await sbx.contexts()).map((c) => c.info.default), [true, false]);
  await context.delete();
  await sbx.delete();
});
