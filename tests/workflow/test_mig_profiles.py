# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import Unavailable
from dnnsuite.workflow.devices import MigProfile, choose_profiles, parse_profiles
from nvidia_tools import A30, A100, H200, listing


def test_the_drivers_list() -> None:
    found = parse_profiles(listing(H200))
    assert found[0] == MigProfile(1, 18, 19, 7)
    assert [(each.slices, each.id) for each in found] == [(1, 19), (1, 15), (2, 14), (3, 9), (4, 5), (7, 0)]
    assert parse_profiles("No MIG-enabled devices found.\n") == []


@pytest.mark.parametrize(
    ("gpu", "slices"),
    [
        (A100, ["7", "33", "222", "2221", "22111", "211111", "1111111"]),
        (H200, ["7", "33", "222", "2221", "22111", "211111", "1111111"]),
        (A30, ["4", "22", "211", "1111"]),
    ],
)
def test_slices_of_n_instances(gpu: list[tuple[str, int, int]], slices: list[str]) -> None:
    profiles = parse_profiles(listing(gpu))
    for n, wanted in enumerate(slices, 1):
        chosen = choose_profiles(profiles, n)
        assert "".join(str(each.slices) for each in chosen) == wanted
        assert all(chosen.count(each) <= each.most for each in chosen)
    for n in (0, len(slices) + 1):
        with pytest.raises(Unavailable, match=rf"into {n} MIG instances .at most {len(slices)}"):
            choose_profiles(profiles, n)


def test_the_least_memory_of_one_size() -> None:
    assert choose_profiles(parse_profiles(listing(H200)), 7)[0].memory_gb == 18
