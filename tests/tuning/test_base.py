# SPDX-License-Identifier: MIT
"""Sweeps over one frozen base, against a loop over separate models, and what they hold of the base."""

import copy
import functools

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import SuccessiveHalving, devices
from dnnsuite.tuning.engine import Engine

CONFIGS = [{"lr": lr, "width": width} for lr in (0.1, 0.01) for width in (3, 4)]
X, Y = torch.randn(48, 6, dtype=torch.float64), torch.randn(48, 2, dtype=torch.float64)


def make_base():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh()).double()


def headed(config, base):
    width = config["width"]
    head = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 2)).double()
    return torch.nn.Sequential(base, head)


def swept(base, **options):
    given = {"batch_size": 16, "epochs": 3, "out": False, "quiet": True, "evaluate": (X, Y), **options}
    return dnnsuite.sweep(headed, CONFIGS, (X, Y), base=base, optimizer="SGD", **given)


def by_hand(number, config, epochs=3):
    base = make_base().requires_grad_(False)
    torch.manual_seed(number)
    model = headed(config, base)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=config["lr"])
    losses = []
    for epoch in range(epochs):
        torch.manual_seed(epoch)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=16, shuffle=True)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        losses.append(torch.nn.functional.mse_loss(model(X), Y).item())
    return losses


@pytest.mark.parametrize("mode", ["hfta", "serial", "concurrent"])
def test_trials_train_as_a_loop_over_frozen_models_would(mode):
    base = make_base()
    before = copy.deepcopy(base.state_dict())
    sweep = swept(base, mode=mode)
    for number, config in enumerate(CONFIGS):
        found = sweep.history[sweep.history["trial"] == number]["loss"].tolist()
        assert found == pytest.approx(by_hand(number, config), rel=1e-9)
    assert all(p.requires_grad for p in base.parameters())
    assert all(torch.equal(before[name], value) for name, value in base.state_dict().items())


def test_the_best_model_has_memory_of_its_own():
    base = make_base()
    best = swept(base).best_model
    with torch.no_grad():
        best[0][0].weight.zero_()
    assert torch.equal(base[0].weight, make_base()[0].weight)


def test_states_on_disk_leave_the_base_out_and_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "Engine", functools.partial(Engine, may_lose_s=0.0))  # each rung is written
    halving = {"algorithm": SuccessiveHalving(4, 1, eta=2), "epochs": 4}
    kept = set()

    def look(event):
        for file in tmp_path.rglob("state-*.pt"):
            kept.update(torch.load(file, weights_only=False)["model"])

    whole = swept(make_base(), **halving)
    stored = swept(make_base(), **halving, out=tmp_path / "s", callbacks=[look])
    again = swept(make_base(), **halving, out=tmp_path / "s", resume=True)
    assert whole.history["loss"].tolist() == stored.history["loss"].tolist() == again.history["loss"].tolist()
    assert {name.removeprefix("model.") for name in kept} == {"1.0.weight", "1.0.bias", "1.2.weight", "1.2.bias"}
    other = make_base()
    with torch.no_grad():
        other[0].bias.add_(1)
    with pytest.raises(InvalidArgument, match="base"):
        swept(other, **halving, out=tmp_path / "s", resume=True)


def test_a_base_is_a_module():
    with pytest.raises(InvalidArgument, match="base is a str"):
        swept("resnet18")


def adapted(config, base):
    from tiny_adapters import peft  # which takes seconds to import

    lora = peft.LoraConfig(r=config["rank"], lora_alpha=5, lora_dropout=config["dropout"], target_modules=["0"])
    return peft.get_peft_model(base, lora)


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
def test_ranks_and_rates_of_dropout_share_an_array():
    base = torch.nn.Sequential(*make_base(), torch.nn.Linear(8, 2).double())
    ranks = ((2, 0.0, 1e-2), (3, 0.1, 3e-2), (6, 0.2, 1e-2), (5, 0.0, 5e-2))
    space = [{"rank": rank, "dropout": rate, "lr": lr} for rank, rate, lr in ranks]
    serial, arrays = (
        dnnsuite.sweep(
            adapted, space, (X, Y), base=base, evaluate=(X, Y), batch_size=16, epochs=4, mode=mode, width=width,
            algorithm=SuccessiveHalving(4, 1, eta=2), out=False, quiet=True, threads=1,
        )
        for mode, width in (("serial", None), ("hfta", 2))
    )  # fmt: skip
    assert len({trial.group for trial in arrays.trials}) == 1
    ordered = [one.history.sort_values(["trial", "epoch"]).to_dict("list") for one in (serial, arrays)]
    assert ordered[0] == ordered[1]
    best = arrays.best_model
    assert next(iter(best.peft_config.values())).r == arrays.best_config["rank"]
    assert torch.nn.functional.mse_loss(best.eval()(X), Y).item() == pytest.approx(arrays.best_value, rel=1e-12)
