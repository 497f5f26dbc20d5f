# SPDX-License-Identifier: MIT
"""The gain of training many models as one array, from finished workflows, as a Markdown table.

    for name in bert transformer dcgan ...; do dnnsuite workflow $name --preset quick --out out/$name; done
    python benchmarks/workflows.py out/*

Ratios only: the best array over one plain model alone, and over the best number of processes side by side, with 95 %
intervals over the repeats. On a machine that others use compare CPU time, of workflows with `--threads 1`.
"""

import argparse
from pathlib import Path

from dnnsuite import results
from dnnsuite.results.batch_sizes import PER_CPU_SECOND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", type=Path, help="outputs of `dnnsuite workflow`")
    parser.add_argument("--cpu-time", action="store_true", help="items per CPU second instead of per second")
    arguments = parser.parse_args()
    table = results.load(*arguments.directories)
    found = results.gains(table, PER_CPU_SECOND if arguments.cpu_time else "throughput", allow_unlike=True)
    print(results.gains_markdown(found), end="")
    machines = sorted({f"{row.cpu_model}, {row.cpus} CPUs, torch {row.torch}" for row in table.itertuples()})
    threads = sorted({int(row.threads) for row in table.itertuples() if row.mode == "serial"})
    print(
        f"\n{'; '.join(machines)}; threads of an array and of one model: {', '.join(map(str, threads))}; "
        f"{'items per CPU second' if arguments.cpu_time else 'items per second'}."
    )
    for note in found.attrs["notes"]:
        print(f"note: {note}")


if __name__ == "__main__":
    main()
