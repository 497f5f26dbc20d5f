# SPDX-License-Identifier: MIT
"""Configs of adapters that differ in what the layers alone know, in one array and in sweeps."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite.adapters.configs import configs_in, take_configs
from dnnsuite.tuning import SuccessiveHalving
from tiny_adapters import lora, peft

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
CONFIGS = [{"lr": lr, "rank": rank, "alpha": alpha} for lr in (0.1, 0.01) for rank in (1, 3) for alpha in (2, 5)]
X, Y = torch.randn(32, 6, dtype=torch.float64), torch.randn(32, 2, dtype=torch.float64)


def make_base():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()


def adapted(config, base):
    own = lora(config["rank"], ["0"], lora_alpha=config["alpha"], modules_to_save=["2"])
    return peft.get_peft_model(base, own)


def models_of(*configs):
    base = make_base().requires_grad_(False)
    return [peft.get_peft_model(copy.deepcopy(base), config) for config in configs]


def test_models_that_differ_in_numbers_of_their_layers_run_at_once():
    models = models_of(*(lora(2, ["0"], lora_alpha=alpha, init_lora_weights=False) for alpha in (2, 5)))
    expected = [model(X) for model in models]
    take_configs(models[1], configs_in(models[0]))
    array = dnnsuite.fuse(models)
    torch.testing.assert_close(array(dnnsuite.stack(X, B=2)), torch.stack(expected))
    assert not [cover for cover in array.coverage() if cover.how == "per model"]


def test_models_that_differ_in_what_a_forward_reads_keep_their_configs():
    another_task = lora(2, ["0"], task_type="FEATURE_EXTRACTION")
    another_kind = peft.IA3Config(target_modules=["0"], feedforward_modules=[])
    one, other, third = models_of(lora(2, ["0"]), another_task, another_kind)
    for model in (other, third):
        before = dict(model.peft_config)
        take_configs(model, configs_in(one))
        assert model.peft_config == before
    plain = torch.nn.Linear(2, 2)
    take_configs(plain, configs_in(one))
    assert not configs_in(plain)


def by_hand(number, config, epochs):
    base = make_base().requires_grad_(False)
    torch.manual_seed(number)
    model = adapted(config, base)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=config["lr"])
    losses = []
    for epoch in range(epochs):
        torch.manual_seed(epoch)
        pairs = torch.utils.data.TensorDataset(X, Y)
        for x, y in torch.utils.data.DataLoader(pairs, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        losses.append(torch.nn.functional.mse_loss(model(X), Y).item())
    return losses


def test_a_sweep_over_ranks_and_scales_that_stops_some_early():
    how = {"optimizer": "AdamW", "batch_size": 16, "epochs": 4, "evaluate": (X, Y)}
    halving = SuccessiveHalving(8, 1, eta=2)
    sweep = dnnsuite.sweep(adapted, CONFIGS, (X, Y), base=make_base(), algorithm=halving, out=False, quiet=True, **how)
    lengths = set()
    for number, row in sweep.table.iterrows():
        config = {"lr": row["lr"], "rank": int(row["rank"]), "alpha": int(row["alpha"])}
        found = sweep.history[sweep.history["trial"] == number]["loss"].tolist()
        lengths.add(len(found))
        assert found == pytest.approx(by_hand(number, config, len(found)), rel=1e-9)
    assert lengths == {1, 2, 4}
    best = sweep.best_model
    (config,) = best.peft_config.values()
    assert config.lora_alpha == sweep.table["alpha"][sweep.table["loss"].idxmin()]
