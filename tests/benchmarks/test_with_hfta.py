# SPDX-License-Identifier: MIT
"""A model of HFTA's operators computes and learns what the plain models do."""

import importlib.util
import os
import sys

import pytest
import torch
import variants
import with_hfta
from setting import Setting
from workloads import WORKLOADS

from dnnsuite.errors import Unavailable

CHECKOUT = os.environ.get("DNNSUITE_HFTA", "")
needs_hfta = pytest.mark.skipif(
    not CHECKOUT and importlib.util.find_spec("hfta") is None,
    reason="HFTA is not importable, and DNNSUITE_HFTA names no checkout of github.com/UofT-EcoSystem/hfta",
)


@pytest.fixture
def hfta(monkeypatch):
    if CHECKOUT:
        monkeypatch.syspath_prepend(CHECKOUT)
    return with_hfta.package()


def plain_models(name, B):
    made = variants.all_built(WORKLOADS[name], B, Setting())
    variants.without_dropout(made)
    return made


LACKING = ("lstm", "swin", "vit", "gpt2", "gru", "deq")


@needs_hfta
@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in LACKING])
def test_losses_and_a_step_are_those_of_the_plain_models(hfta, name):
    workload, B = WORKLOADS[name], 2
    plain = plain_models(name, B)
    fused = with_hfta.convert(plain)
    batch = variants.for_hfta(workload, B, Setting())
    optimizer = with_hfta.adam(fused.parameters(), variants.rates(B))
    others = [
        torch.optim.Adam(model.parameters(), lr=rate) for model, rate in zip(plain, variants.rates(B), strict=True)
    ]
    for tolerance in (1e-3, 2e-2):  # Adam's first step is the sign of a gradient, also of one that is nearly 0
        expected = torch.stack([workload.loss(model, *(x[0] for x in batch)) for model in plain])
        total = workload.total(fused, *batch)
        close = {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(workload.losses(fused, *batch), expected, **close)
        torch.testing.assert_close(total, expected.sum(), **close)
        for one in (optimizer, *others):
            one.zero_grad()
        total.backward()
        expected.sum().backward()
        for one in (optimizer, *others):
            one.step()


@needs_hfta
def test_what_it_lacks_is_named(hfta):
    with pytest.raises(with_hfta.NoOperator, match="LSTM"):
        with_hfta.convert(plain_models("lstm", 2))
    deq, x = plain_models("deq", 2), torch.randn(2, 3, 64)
    with pytest.raises(with_hfta.NoOperator, match="as often as the slowest"):
        with_hfta.convert(deq)(x)
    with pytest.raises(with_hfta.NoOperator, match="PReLU"):
        with_hfta.convert([torch.nn.Sequential(torch.nn.PReLU()) for _ in range(2)])


@needs_hfta
def test_the_check_sees_other_weights(hfta, monkeypatch):
    variants.check_hfta(WORKLOADS["mlp_s"], 2, Setting())
    convert = with_hfta.convert
    monkeypatch.setattr(with_hfta, "convert", lambda plain: convert(plain[::-1]))
    with pytest.raises(AssertionError, match="first losses differ"):
        variants.check_hfta(WORKLOADS["mlp_s"], 2, Setting())


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "hfta.ops", None)
    with pytest.raises(Unavailable, match="PYTHONPATH"):
        with_hfta.package()
