# SPDX-License-Identifier: Apache-2.0
"""A notebook in a sandbox: cells share their variables; a table and a chart come out.

    python3 pandas_chart.py [OUTPUT.png]

The sandbox sees the host's /usr, so pandas and matplotlib have to be installed there (Debian:
python3-pandas, python3-matplotlib), or in a template (``stockade template build``).
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from stockade import Limits, Sandbox

CELLS = (
    """
import matplotlib
matplotlib.use("Agg")
import pandas
data = pandas.read_csv("sales.csv", parse_dates=["day"])
data.describe()
""",
    """
monthly = data.groupby([data.day.dt.month, "shop"]).amount.sum().unstack()
print(monthly.round(2).to_string())
""",
    """
axes = monthly.plot(kind="bar", rot=0, title="Sales by month and shop", xlabel="", ylabel="amount")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=3)
axes.figure.tight_layout()
axes.figure
""",
)


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
    """Run the cells and save the chart."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "chart.png")
    began = time.perf_counter()
    limits = Limits(memory="1G", pids=64)
    with Sandbox.create(ttl=300, limits=limits) as sandbox:
        if not sandbox.run("python3", "-c", "import pandas, matplotlib").ok:
            print("pandas or matplotlib is not installed where the sandbox can see it")
            return 77
        sandbox.files.write("sales.csv", sales())
        for number, cell in enumerate(CELLS, 1):
            done = sandbox.run_code(cell, timeout=60, on_stdout=print)
            if done.error is not None:
                print(f"cell {number}: {done.error.name}: {done.error.value}")
                return 1
            for result in done.results:
                if result.png is not None:
                    target.write_bytes(result.png)
                    print(f"saved {target}")
                elif result.text is not None:
                    print(result.text)
    print(f"in {time.perf_counter() - began:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
