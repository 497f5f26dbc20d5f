# SPDX-License-Identifier: MIT
"""nvprof's tables for people become the CSV that it would have written."""

from dnnsuite.importers import nvprof
from dnnsuite.importers._nvprof_text import as_csv, is_text_header


def test_metrics_as_they_are_printed_for_people(tmp_path):
    path = tmp_path / "metrics.txt"
    path.write_text(
        "==1== Metric result:\n"
        "Invocations                   Metric Name            Metric Description         Min         Max         Avg\n"
        'Device "Some GPU (0)"\n'
        "    Kernel: void reduce<unsigned int=1024>(float*, int)\n"
        "          4     dram_read_throughput    Device Memory Read Throughput  1.0000GB/s  3.0000GB/s  2.0000GB/s\n"
        "          4   single_precision_fu_utilization   Single-Precision FU Utilization  Low (1)  Mid (5)  Low (2)\n",
        encoding="utf-8",
    )
    tables = nvprof.read(path)
    assert tables["metrics"]["value"].tolist() == [2 * 2**30, 2]
    assert tables["launches"]["name"].unique().tolist() == ["void reduce<unsigned int=1024>(float*, int)"]


def test_lines_keep_their_numbers_and_others_stay():
    lines = [
        "loss 0.5",
        "Time(%)      Time     Calls       Avg       Min       Max  Name",
        " 50.0%  1ms  2  1ms  1ms  1ms  f(a, b)",
        "x",
    ]
    made = as_csv(lines)
    assert is_text_header(lines[1])
    assert (made[0], made[3]) == ("loss 0.5", "x")
    assert made[2] == '"GPU activities","50.0%","1ms","2","1ms","1ms","1ms","f(a, b)"'
