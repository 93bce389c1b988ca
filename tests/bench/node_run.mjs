// SPDX-License-Identifier: Apache-2.0
// Latency of a one-shot run of /usr/bin/true through the Node client beside the C client, and the ratio.
//
//   node node_run.mjs BUILD_DIR [ROUNDS] [GAP_MS]
//
// BUILD_DIR holds a release build, and the Node package as `client/node/check BUILD_DIR` leaves it. The two take turns
// in blocks on one broker of their own, so that a noisy moment hits both; the ratio is the median of the blocks' ratios
// of medians. The C client's figures come from bench-one_shot. Needs root. Prints JSON rows as the others here do.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [build, rounds = "200", gap = "0"] = process.argv.slice(2);
if (build === undefined) {
  process.stderr.write("usage: node_run.mjs BUILD_DIR [ROUNDS] [GAP_MS]\n");
  process.exit(2);
}
const BLOCK = 20;
const dist = join(build, "client-node/client/node/dist");
process.env.STOCKADE_BUILD = build;
const { Broker } = await import(pathToFileURL(join(dist, "test/flow/server.js")));
const { run } = await import(pathToFileURL(join(dist, "src/index.js")));

function at(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

async function nodeBlock(client) {
  const us = [];
  for (let i = 0; i < BLOCK; i++) {
    await new Promise((resolve) => setTimeout(resolve, Number(gap)));
    const from = performance.now();
    const result = await run(["/usr/bin/true"], { client, check: true });
    us.push((performance.now() - from) * 1000);
    if (!result.ok) {
      throw new Error(String(result));
    }
  }
  return us;
}

function cBlock(address) {
  const tool = join(build, "tests/bench/bench-one_shot");
  const out = execFileSync(tool, [address, String(BLOCK), gap], { encoding: "utf8" });
  const rows = out.split("\n").filter((l) => l.startsWith("{"));
  return rows.map((l) => JSON.parse(l)).find((r) => r.row === "stockade");
}

const ratios = [];
const c50 = [];
const c99 = [];
const node = [];
const broker = new Broker();
try {
  await broker.start();
  const client = broker.client();
  await nodeBlock(client); // the compiler of V8 has to see it first
  for (let done = 0; done < Number(rounds); done += BLOCK) {
    const c = cBlock(broker.address);
    const n = (await nodeBlock(client)).sort((a, b) => a - b);
    c50.push(c.p50_us);
    c99.push(c.p99_us);
    node.push(...n);
    ratios.push(at(n, 0.5) / c.p50_us);
  }
  await client.close();
} finally {
  await broker[Symbol.asyncDispose]();
}
for (const list of [ratios, c50, c99, node]) {
  list.sort((a, b) => a - b);
}
for (const [row, p50_us, p99_us] of [
  ["C client", at(c50, 0.5), at(c99, 0.5)],
  ["Node client", at(node, 0.5), at(node, 0.99)],
]) {
  console.log(JSON.stringify({ bench: "node-run", row, n: node.length, p50_us, p99_us, gap_ms: Number(gap) }));
}
console.log(`Node client / C client: ${at(ratios, 0.5).toFixed(2)} (median of ${ratios.length} blocks)`);
