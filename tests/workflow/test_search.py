# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.workflow.settings import FLAGS, SEARCHED, as_flag, resolve_search


def test_flags_are_hftas() -> None:
    assert as_flag("hfta", "max_num_Bs") == "--hfta-max-num-Bs"
    assert as_flag("mig", "dry_run_iters_per_epoch") == "--mig-dry-run-iters-per-epoch"
    assert len(SEARCHED) * len(FLAGS) == 20


def test_own_flag_before_common_before_presets() -> None:
    preset = {"max_num_Bs": 4, "dry_run_iters": 7, "search": {"hfta": {"max_num_Bs": 9, "dry_run_repeats": 3}}}
    found = resolve_search({"mps_max_num_Bs": 2, "lambd": 1.0}, preset, paper=False)
    assert [found[mode]["max_num_Bs"] for mode in ("concurrent", "mps", "hfta")] == [4, 2, 9]
    assert [found[mode]["dry_run_repeats"] for mode in ("concurrent", "hfta")] == [1, 3]
    assert {found[mode]["lambd"] for mode in SEARCHED} == {1.0}
    assert found["mig"]["dry_run_iters_per_epoch"] == 7


def test_hftas_values_stand_in_the_papers_protocol() -> None:
    found = resolve_search({}, {"max_num_Bs": 4, "dry_run_iters": 7}, paper=True)
    assert [found[mode]["dry_run_repeats"] for mode in SEARCHED] == [10, 10, 1, 1]
    assert [found[mode]["max_num_Bs"] for mode in SEARCHED] == [5, 5, 5, 10]
    assert [found[mode]["dry_run_iters_per_epoch"] for mode in SEARCHED] == [10, 10, 10, 3]
    assert {found[mode]["dry_run_epochs"] for mode in SEARCHED} == {2}


def test_a_preset_with_a_bad_value_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="--dry-run-epochs 0: must be at least 1"):
        resolve_search({}, {"search": {"hfta": {"dry_run_epochs": 0}}}, paper=False)
