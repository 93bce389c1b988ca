# SPDX-License-Identifier: Apache-2.0
# What Node's core does with the system: files, watch, streams, child processes, workers, sockets, timers, crypto.
cat >m.mjs <<'J'
import { once } from "node:events";
import { createServer, connect } from "node:net";
import { execFileSync, fork, spawn } from "node:child_process";
import { Worker } from "node:worker_threads";
import { createHash, randomBytes, scryptSync } from "node:crypto";
import { gzipSync, gunzipSync } from "node:zlib";
import { mkdtempSync, promises as fs, watch, readdirSync, statSync } from "node:fs";
import os from "node:os";
import path from "node:path";
const say = (name, value) => console.log(name, JSON.stringify(value));
if (process.argv[2] === "child") { process.on("message", (m) => { process.send(m * 2, () => process.disconnect()); }); } else {
  const dir = mkdtempSync(path.join(os.tmpdir(), "n-"));
  await fs.writeFile(path.join(dir, "a"), "hello"); await fs.appendFile(path.join(dir, "a"), " again");
  await fs.symlink("a", path.join(dir, "l")); await fs.link(path.join(dir, "a"), path.join(dir, "h"));
  say("files", [await fs.readFile(path.join(dir, "l"), "utf8"), statSync(path.join(dir, "h")).nlink, readdirSync(dir)]);
  const watcher = watch(dir); const seen = once(watcher, "change"); await fs.writeFile(path.join(dir, "b"), ""); say("watch", (await seen)[1]); watcher.close();
  say("enoent", await fs.open(path.join(dir, "none")).catch((e) => e.code));
  say("unlink below /usr", await fs.unlink("/usr/none").catch((e) => e.code));
  say("exec", execFileSync("sh", ["-c", "echo $((6*7))"]).toString());
  const child = fork(process.argv[1], ["child"]); child.send(21); say("fork", (await once(child, "message"))[0]); await once(child, "exit");
  const killed = spawn("sleep", ["60"]); killed.kill("SIGTERM"); say("signal", (await once(killed, "exit"))[1]);
  const worker = new Worker("require('worker_threads').parentPort.postMessage(require('worker_threads').workerData.reduce((a, b) => a + b))", { eval: true, workerData: [1, 2, 3] });
  say("worker", (await once(worker, "message"))[0]);
  for (const where of [{ port: 0, host: "127.0.0.1" }, { path: path.join(dir, "s") }, { port: 0, host: "::1" }]) {
    const server = createServer((c) => c.pipe(c)).listen(where); await once(server, "listening");
    const c = connect(where.path ? { path: where.path } : { port: server.address().port, host: where.host });
    c.end("ping"); let got = ""; for await (const part of c) got += part; say("echo", got); server.close();
  }
  say("hash", createHash("sha256").update("x").digest("hex").slice(0, 16)); say("random", randomBytes(16).length); say("scrypt", scryptSync("p", "s", 16).toString("hex"));
  say("gzip", gunzipSync(gzipSync("y".repeat(1e6))).length);
  const from = process.hrtime.bigint(); await new Promise((r) => setTimeout(r, 30)); say("timer", process.hrtime.bigint() - from >= 29000000n);
  say("wasm", new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])) instanceof WebAssembly.Module);
}
J
node m.mjs
