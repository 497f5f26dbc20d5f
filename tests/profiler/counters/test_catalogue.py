# SPDX-License-Identifier: MIT
"""Names, against the real library, which needs no GPU; without it the error says what helps."""

import os
import subprocess
import sys

import pytest

from cupti_plans import needs_cupti
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.profiler.counters import catalogue


@needs_cupti
def test_chips_from_volta_to_blackwell():
    known = catalogue.chips()
    assert {"GV100", "TU102", "GA100", "GA102", "AD102", "GH100", "GB100", "GB202"} <= set(known)
    assert "GV100" not in catalogue.chips("sampling")
    assert "GH100" in catalogue.chips("sampling")
    assert all(catalogue.host(chip).metrics("counter") for chip in known)


@needs_cupti
def test_metrics_are_found_by_pattern_and_by_part_of_their_name():
    exact = catalogue.metrics("GH100", "dram__bytes_read")
    assert [(one.name, one.type, one.unit, one.hardware_unit) for one in exact] == [
        ("dram__bytes_read", "counter", "byte", "dram")
    ]
    assert exact[0].description
    pipes = catalogue.metrics("GH100", "sm__pipe_*_cycles_active")
    assert {one.name for one in pipes} <= {one.name for one in catalogue.metrics("GH100", "pipe")}
    assert len(pipes) > 5
    assert catalogue.metrics("GH100", "no_such_thing") == []


@needs_cupti
def test_units():
    assert catalogue.unit_of("dram__bytes_read.sum", "GH100") == "byte"
    assert catalogue.unit_of("dram__bytes_read.sum.per_second", "GH100") == "byte/s"
    assert catalogue.unit_of("sm__inst_executed.avg.per_cycle_active", "GH100") == "instruction/gpc_cycle"
    assert catalogue.unit_of("gpu__time_duration.sum", "GH100") == "ns"
    assert catalogue.unit_of("lts__t_sector_hit_rate.ratio", "GH100") == ""
    assert catalogue.unit_of("dram__throughput.avg.pct_of_peak_sustained_elapsed", "GH100") == "%"


@needs_cupti
def test_an_unknown_chip_is_named_with_the_known():
    with pytest.raises(Unavailable, match="GH200") as caught:
        catalogue.metrics("GH200")
    assert "GH100" in caught.value.remedy
    with pytest.raises(InvalidArgument, match="ranges, sampling"):
        catalogue.host("GH100", "colour")


def test_without_cupti_the_error_says_what_helps(tmp_path):
    """In a process of its own, whose loader comes upon a damaged file first: a library that was opened once stays."""
    (tmp_path / "libcupti.so.13").write_text("not a library")
    script = (
        "from dnnsuite import host\n"
        "host.vendor_folders = lambda: []\n"
        "from dnnsuite.errors import Unavailable\n"
        "from dnnsuite.profiler.counters import chips, metrics, support\n"
        "for ask in (chips, lambda: metrics('GH100')):\n"
        "    try:\n"
        "        ask()\n"
        "    except Unavailable as error:\n"
        "        print(error)\n"
        "print([one.remedy for one in support() if one.name == 'planning'])\n"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.count("pip install 'dnnsuite[counters]'") == 3, done.stderr
    assert "libcupti.so.13 cannot be loaded" in done.stdout


@pytest.mark.parametrize(
    ("said", "metric", "unit"),
    [
        ("byte", "dram__bytes_read.sum.per_second", "byte/s"),  # CUPTI 13.1
        ("byte/second", "dram__bytes_read.sum.per_second", "byte/s"),  # 13.0
        ("byte", "dram__bytes_read.sum", "byte"),
        ("", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
        ("instruction", "sm__inst_executed.avg.per_cycle_active", "instruction/cycle"),
        ("instruction/gpc_cycle", "sm__inst_executed.avg.per_cycle_active", "instruction/gpc_cycle"),
    ],
)
def test_a_unit_says_what_the_name_says_whatever_the_version(said, metric, unit):
    assert catalogue.with_suffix(said, metric) == unit
