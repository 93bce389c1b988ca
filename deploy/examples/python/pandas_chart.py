# SPDX-License-Identifier: Apache-2.0
"""A pandas analysis in a sandbox: data goes in, a table and a chart come out.

    python3 pandas_chart.py [OUTPUT.png]

The sandbox sees the host's /usr, so pandas and matplotlib have to be installed there (Debian:
python3-pandas, python3-matplotlib).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from stockade import Limits, Sandbox

ANALYSIS = """
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
"""


def sales() -> str:
    """Make a year of sales up."""
    dice = random.Random(1)
    rows = ["day,shop,amount"]
    for day in range(365):
        month, in_month = divmod(day, 31)
        if month < 12 and in_month < 28:
            rows += [
                f"2025-{month + 1:02}-{in_month + 1:02},{shop},{dice.uniform(50, 500):.2f}"
                for shop in ("north", "south", "east")
            ]
    return "\n".join(rows) + "\n"


def main() -> int:
    """Run the analysis and save its chart."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "chart.png")
    limits = Limits(memory="1G", pids=64, cpu_time=60)
    with Sandbox.create(ttl=300, limits=limits) as sandbox:
        if not sandbox.run("python3", "-c", "import pandas, matplotlib").ok:
            print("pandas or matplotlib is not installed where the sandbox can see it")
            return 77
        sandbox.run("sh", "-c", "cat > sales.csv", stdin=sales(), check=True)
        env = {"MPLCONFIGDIR": "/tmp"}
        result = sandbox.run(
            "python3", "-", stdin=ANALYSIS, env=env, timeout=60, on_stdout=print
        ).check()
        target.write_bytes(sandbox.run("cat", "chart.png", check=True).stdout_bytes)
    peak = (result.bill.memory_peak or 0) / (1 << 20)
    print(f"saved {target}: {result.bill.cpu_time:.2f} s of CPU, {peak:.0f} MiB at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
