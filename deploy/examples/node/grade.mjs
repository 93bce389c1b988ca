// SPDX-License-Identifier: Apache-2.0
// Grades 200 submissions in parallel, each in a sandbox of its own, with a progress bar.
//
//   npm install ./client/node                # once, where this program is to run
//   node grade.mjs [SUBMISSIONS]
//
// A submission is a program that should print the sum of the numbers on stdin. Some are wrong, some never end, some eat
// memory, some do not even parse: none of them disturbs another, and each one's end is named.
import { run } from "stockade";

const PARALLEL = 16; // at once; the broker queues what is more than its CPUs can do
const NUMBERS = Array.from({ length: 100 }, (_, i) => i + 1).join(" ");
const EXPECTED = "5050";
const BAR = 40;

const PROGRAMS = [
  "print(sum(map(int, input().split())))",
  "n = 0\nfor word in input().split():\n    n += int(word)\nprint(n)",
  "print(max(map(int, input().split())))",
  "while True: pass",
  "print(sum(map(int, input().split()))",
  "x = ['x' * 1_000_000 for _ in range(10_000)]",
  "import sys\nsys.exit(3)",
  "import socket\nsocket.create_connection(('1.1.1.1', 80), 1)",
];

function verdict(result) {
  if (result.outcome === "limit") {
    return `limit ${result.limitHit?.name ?? "unknown"}`;
  }
  if (!result.ok) {
    return "error";
  }
  return result.stdout.trim() === EXPECTED ? "right" : "wrong";
}

function show(done, total, began) {
  const full = Math.floor((BAR * done) / total);
  const rate = (done / ((performance.now() - began) / 1000)).toFixed(0);
  process.stdout.write(`\r[${"#".repeat(full)}${".".repeat(BAR - full)}] ${done}/${total}  ${rate}/s`);
}

async function main(total) {
  const began = performance.now();
  const verdicts = new Map();
  let next = 0;
  let done = 0;
  let cpu = 0;
  const worker = async () => {
    while (next < total) {
      const program = PROGRAMS[next++ % PROGRAMS.length];
      const limits = { memory: "64M", cpuTime: 1 };
      const result = await run(["python3", "-c", program], { stdin: NUMBERS, timeout: 60, limits });
      verdicts.set(verdict(result), (verdicts.get(verdict(result)) ?? 0) + 1);
      cpu += result.bill.cpuTime ?? 0;
      show(++done, total, began);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  process.stdout.write("\n");
  for (const [name, count] of [...verdicts].sort((a, b) => b[1] - a[1])) {
    console.log(`${String(count).padStart(5)} ${name}`);
  }
  console.log(`${cpu.toFixed(2)} s of CPU in ${((performance.now() - began) / 1000).toFixed(2)} s`);
}

await main(Number(process.argv[2] ?? 200));
