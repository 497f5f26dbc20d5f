# SPDX-License-Identifier: MIT
"""GPU time by kernel."""

import pytest

from dnnsuite.profiler import definitions
from dnnsuite.profiler.activity import by_class, by_kernel
from profiler.activity.tables import kernels

RAN = kernels(
    (0, 10, "small", "norm", 1), (10, 40, "big", "gemm", 2), (40, 90, "big", "gemm", 3), (90, 100, None, "other", 4)
)


def test_kernels_by_name_longest_first():
    table = by_kernel(RAN)
    assert table["name"].fillna("-").tolist() == ["big", "small", "-"]
    assert table["calls"].tolist() == [2, 1, 1]
    assert table["total_ns"].tolist() == [80, 10, 10]
    assert table["share_pct"].tolist() == pytest.approx([80, 10, 10])
    big = table.iloc[0]
    assert (big["mean_ns"], big["median_ns"], big["least_ns"], big["most_ns"]) == (40, 40, 30, 50)
    assert definitions(table).keys() == {*table.columns}
    assert by_kernel(RAN, top=1)["name"].tolist() == ["big"]


def test_classes():
    table = by_class(RAN)
    assert table["class"].tolist() == ["gemm", "norm", "other"]
    assert table["share_pct"].sum() == pytest.approx(100)


def test_nothing_ran():
    assert len(by_kernel(kernels())) == 0
    assert len(by_class(kernels())) == 0
