# SPDX-License-Identifier: MIT

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.workflow import NothingFits, expovariate_plan, find_max_B


def tries(true_max: int, **options: int) -> tuple[int, list[int]]:
    tried: list[int] = []

    def try_B(B: int) -> bool:
        tried.append(B)
        return true_max >= B

    return find_max_B(try_B, **options), tried


def test_trace_for_thirteen() -> None:
    assert tries(13) == (13, [1, 2, 4, 8, 16, 12, 14, 13])


@given(st.integers(1, 5000))
def test_finds_the_maximum_with_few_tries(true_max: int) -> None:
    found, tried = tries(true_max)
    assert found == true_max
    assert len(tried) <= 2 * true_max.bit_length() + 1
    assert len(set(tried)) == len(tried)


@given(st.integers(1, 300), st.integers(1, 300))
def test_limit_is_proven_and_never_passed(true_max: int, limit: int) -> None:
    found, tried = tries(true_max, limit=limit)
    assert found == min(true_max, limit)
    assert max(tried) <= limit
    assert found in tried


def test_every_pass_is_repeated() -> None:
    assert tries(2, dry_run_repeats=3) == (2, [1, 1, 1, 2, 2, 2, 4, 3])


def test_nothing_fits() -> None:
    with pytest.raises(NothingFits, match="cannot fit a single model"):
        find_max_B(lambda B: False)


@pytest.mark.parametrize("options", [{"limit": 0}, {"dry_run_repeats": 0}])
def test_search_refuses(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=f"{next(iter(options))}=0"):
        find_max_B(lambda B: True, **options)


@given(st.integers(1, 400), st.integers(1, 40), st.floats(0.1, 200), st.integers(0, 2**32))
def test_plan_properties(max_B: int, max_num_Bs: int, lambd: float, seed: int) -> None:
    plan = expovariate_plan(max_B, max_num_Bs, lambd, seed)
    assert plan == sorted(set(plan))
    assert {1, max_B} <= set(plan)
    assert min(plan) >= 1
    assert max(plan) <= max_B
    assert len(plan) == max(min(max_num_Bs, max_B), len({1, max_B}))
    assert plan == expovariate_plan(max_B, max_num_Bs, lambd, seed)


def test_plan_is_denser_at_small_B() -> None:
    inner = [B for seed in range(200) for B in expovariate_plan(100, 6, 4.0, seed) if B not in (1, 100)]
    assert sum(B <= 50 for B in inner) > 3 * sum(B > 50 for B in inner)


@pytest.mark.parametrize(
    "arguments", [(0, 5, 4.0), (5, 0, 4.0), (5, 2, 0.0), (5, 2, float("nan"))], ids=["max_B", "num", "zero", "nan"]
)
def test_plan_refuses(arguments: tuple[int, int, float]) -> None:
    with pytest.raises(InvalidArgument):
        expovariate_plan(*arguments)
