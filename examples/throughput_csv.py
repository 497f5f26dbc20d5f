# SPDX-License-Identifier: MIT
"""Read the rates that `dnnsuite throughput` measured: `throughput_csv.py [DIR]`. Without DIR it measures, 10 seconds.

`DIR/throughput.csv` has a row for each batch size; `dnnsuite.results` reads the records it was made of.
"""

import subprocess
import sys
from pathlib import Path

import pandas as pd

from dnnsuite import results

out = Path(sys.argv[1] if len(sys.argv) > 1 else "throughput-toy_reg")
if not out.exists():
    sizes = ["--batch-sizes", "64,256", "--stop-iteration", "60", "--start-iteration", "20"]
    subprocess.run([sys.executable, "-m", "dnnsuite", "throughput", "toy_reg", *sizes, "--out", str(out)], check=True)

# The file, with pandas alone: one row per batch size.
table = pd.read_csv(out / "throughput.csv")
print(table[["batch_size", "status", "rate", "unit", "ms_per_step"]].to_string(index=False))

# The records have all details of each run: load them as a tidy table of runs and metrics.
runs = results.load(out)
print(f"{len(runs)} rows of {runs['run_id'].nunique()} runs on {runs['device'].iloc[0]}")
summary = results.by_batch_size(runs)
best = summary.loc[summary["rate"].idxmax()]
print(f"{best['rate']:.4g} {best['unit']} at batch size {best['batch_size']}, the fastest")
