# SPDX-License-Identifier: MIT
"""Models of JAX learn what those of torch do; without JAX the variant says so."""

import importlib.util

import numpy as np
import pytest
import torch
import with_jax
from plain import built, drawn, rates
from setting import Setting
from variants import VARIANTS, without_dropout
from workloads import WORKLOADS

from dnnsuite.errors import Unavailable

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")


@needs_jax
@pytest.mark.parametrize(
    ("name", "together"), [("mlp_s", False), ("mlp_m", True), ("cnn", True), ("gru", False), ("tabular_resnet", True)]
)
def test_losses_over_some_steps_are_torchs(name, together):
    workload, setting, B = WORKLOADS[name], Setting(), 2
    trainer = with_jax.Trainer(name, B, together, dropout=False)
    models = [built(workload, seed, setting) for seed in range(B)]
    without_dropout(models)
    adams = [torch.optim.Adam(m.parameters(), lr=lr) for m, lr in zip(models, rates(B), strict=True)]
    *_, last = dict(models[0].named_parameters())  # a bias
    for _ in range(3):
        trainer.step()
        expected = []
        for model, adam in zip(models, adams, strict=True):
            loss = workload.loss(model, *drawn(workload, setting))
            adam.zero_grad()
            loss.backward()
            adam.step()
            expected.append(loss.item())
        assert [float(loss) for loss in trainer.losses] == pytest.approx(expected, rel=1e-4)
    states = [trainer.states] if together else trainer.states
    found = torch.cat([torch.tensor(np.asarray(state["weights"][last]).reshape(-1)) for state in states])
    trained = torch.cat([model.get_parameter(last).detach() for model in models])
    torch.testing.assert_close(found, trained, rtol=0, atol=2e-5)  # three steps of Adam are 3e-4


@needs_jax
def test_dropout_drops_and_keeps_the_mean():
    import jax
    import jax.numpy as jnp

    drop = with_jax.dropper(jax.random.key(0))
    first, second = drop(jnp.ones(4000), 0.25), drop(jnp.ones(4000), 0.25)
    assert sorted(set(map(float, first))) == pytest.approx([0.0, 4 / 3])
    assert float(first.mean()) == pytest.approx(1, abs=0.05)
    assert (first != second).any()


@needs_jax
def test_the_variant_has_a_process_of_its_own():
    way = VARIANTS["jax+vmap"](WORKLOADS["mlp_s"], 2, Setting())
    try:
        assert way(2) > 0  # CPU seconds of that process
    finally:
        way.close()


@pytest.mark.parametrize(
    ("name", "setting", "reason"),
    [
        ("bert", Setting(), "written for JAX"),
        ("mlp_s", Setting(precision="bf16"), "on a CPU, in fp32"),
        ("mlp_s", Setting(device="cuda:0"), "on a CPU, in fp32"),
    ],
)
def test_what_is_not_compared_is_said(name, setting, reason, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "some")
    with pytest.raises(Unavailable, match=reason):
        VARIANTS["jax"](WORKLOADS[name], 2, setting)


def test_without_jax_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pip install jax"):
        VARIANTS["jax"](WORKLOADS["mlp_s"], 2, Setting())
