// SPDX-License-Identifier: Apache-2.0
// An agent loop: a model writes code, the sandbox runs it, the model reads what came of it.
//
//   npm install ./client/node                # once, where this program is to run
//   node agent_loop.mjs                      # with the stand-in below: no model, no network, the same every time
//   node agent_loop.mjs "your task"          # with your model: put its call into `ask`
//
// Everything that the model's code can do is bounded by the sandbox: memory, time, processes, files, no network.
import { Sandbox } from "stockade";

const TURNS_MAX = 6;
const OUTPUT_MAX = 2000; // characters of output that go back to the model

// What a model would write, one answer after the other: a bug, a loop without end, and then the right thing.
const STAND_IN = [
  "import statistics\nprint(statistics.mean(primes))",
  "n, primes = 2, []\nwhile len(primes) < 100:\n    if all(n % p for p in primes): primes.append(n)",
  `n, primes = 2, []
while len(primes) < 100:
    if all(n % p for p in primes): primes.append(n)
    n += 1
print('mean of the first 100 primes:', sum(primes) / 100)`,
  "DONE",
];

// The next piece of Python, or DONE. Replace this by a call of your model.
async function ask(_task, history) {
  return STAND_IN[history.length];
}

// What came of it, in words that a model can act on.
function feedback(result) {
  const text = (result.stdout + result.stderr).slice(-OUTPUT_MAX);
  if (result.ok) {
    return `It worked:\n${text}`;
  }
  if (result.outcome === "limit") {
    const { name, value } = result.limitHit;
    return `It was stopped by a limit: ${name}=${value}. Output so far:\n${text}`;
  }
  return `It failed (${result}):\n${text}`;
}

async function main(task) {
  const history = [];
  console.log(`task: ${task}`);
  const sandbox = await Sandbox.create({ ttl: "5m", limits: { memory: "256M", pids: 64 } });
  try {
    for (let turn = 1; turn <= TURNS_MAX; turn++) {
      const code = await ask(task, history);
      if (code.trim() === "DONE") {
        console.log(`done after ${turn - 1} runs`);
        return 0;
      }
      const result = await sandbox.run(["python3", "-"], { stdin: code, timeout: 2 });
      const said = feedback(result);
      console.log(`--- run ${turn}: ${(result.bill.cpuTime ?? 0).toFixed(3)} s of CPU\n${said.trimEnd()}`);
      history.push([code, said]);
    }
  } finally {
    await sandbox.delete();
  }
  console.log("gave up");
  return 1;
}

process.exitCode = await main(process.argv.slice(2).join(" ") || "Compute the mean of the first 100 primes.");
