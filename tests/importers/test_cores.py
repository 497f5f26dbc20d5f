# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.importers import core_report, cores, ncu
from dnnsuite.profiler.counters import format_core_utilization
from importer_samples import FIXTURES


def test_the_mean_weighted_by_cycles_and_with_the_last_kernel():
    found, notes = core_report(ncu.read(FIXTURES / "ncu_details_old.csv"))
    # (1e6·40 + 3e6·10) / 4e6; without the last kernel it would be 40
    assert format_core_utilization(found).split("\n") == [
        "fma\t17.50000 %",
        "fp16\t3.00000 %",
        "tensor\t20.00000 %",
        "sfu\t0.75000 %",
    ]
    assert notes == ["tensor: 1 of 2 launches have no value and are left out"]


def test_a_newer_gpus_metrics_are_the_same_roles():
    table = ncu.read(FIXTURES / "ncu_raw.csv")
    assert cores.core_metrics(table)["tensor"].startswith("sm__pipe_tensor_cycles_active.avg")
    found, notes = core_report(table)
    assert dict(zip(found["core"], found["pct_of_busy"], strict=True)) == {"fma": 12.5, "tensor": 55.0}
    assert notes[:2] == ["fp16 was not measured", "sfu was not measured"]


def test_what_is_missing_is_named_with_the_command():
    with pytest.raises(InvalidArgument, match=r"metrics of all cores; .* `ncu --csv --metrics gpc__cycles_elapsed.max"):
        core_report(ncu.read(FIXTURES / "ncu_details_new.csv"))
    table = ncu.read(FIXTURES / "ncu_details_old.csv")
    with pytest.raises(InvalidArgument, match=r"lacks gpc__cycles_elapsed\.max"):
        core_report(table[table["metric"] != cores.CYCLES])
