// SPDX-License-Identifier: Apache-2.0
// A pandas analysis in a sandbox: data goes in, a table and a chart come out.
//
//   npm install ./client/node                # once, where this program is to run
//   node pandas_chart.mjs [OUTPUT.png]
//
// The sandbox sees the host's /usr, so pandas and matplotlib have to be installed there (Debian: python3-pandas,
// python3-matplotlib).
import { writeFile } from "node:fs/promises";
import { Sandbox } from "stockade";

const ANALYSIS = `
import matplotlib
matplotlib.use("Agg")
import pandas
data = pandas.read_csv("sales.csv", parse_dates=["day"])
monthly = data.groupby([data.day.dt.month, "shop"]).amount.sum().unstack()
print(monthly.round(2).to_string())
axes = monthly.plot(kind="bar", rot=0, title="Sales by month and shop", xlabel="", ylabel="amount")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=3)
axes.figure.tight_layout()
axes.figure.savefig("chart.png")
`;

// A year of sales, made up.
function sales() {
  const rows = ["day,shop,amount"];
  for (let day = new Date("2025-01-01"); day.getUTCFullYear() === 2025; day.setUTCDate(day.getUTCDate() + 1)) {
    for (const shop of ["north", "south", "east"]) {
      rows.push(`${day.toISOString().slice(0, 10)},${shop},${(50 + 450 * Math.random()).toFixed(2)}`);
    }
  }
  return rows.join("\n") + "\n";
}

async function main(target) {
  const limits = { memory: "1G", pids: 64, cpuTime: 60 };
  const sandbox = await Sandbox.create({ ttl: "5m", limits });
  try {
    if (!(await sandbox.run(["python3", "-c", "import pandas, matplotlib"])).ok) {
      console.log("pandas or matplotlib is not installed where the sandbox can see it");
      return 77;
    }
    await sandbox.run(["sh", "-c", "cat > sales.csv"], { stdin: sales(), check: true });
    const result = await sandbox.run(["python3", "-"], {
      stdin: ANALYSIS,
      env: { MPLCONFIGDIR: "/tmp" },
      timeout: 60,
      onStdout: (line) => console.log(line),
      check: true,
    });
    const chart = await sandbox.run(["cat", "chart.png"], { check: true });
    await writeFile(target, chart.stdoutBytes);
    const peak = ((result.bill.memoryPeak ?? 0) / 2 ** 20).toFixed(0);
    console.log(`saved ${target}: ${(result.bill.cpuTime ?? 0).toFixed(2)} s of CPU, ${peak} MiB at most`);
  } finally {
    await sandbox.delete();
  }
  return 0;
}

process.exitCode = await main(process.argv[2] ?? "chart.png");
