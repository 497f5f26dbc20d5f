# SPDX-License-Identifier: MIT
"""Sweeps with optimizers that look at whole parameters, or whose models are others in evaluation."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.tuning import Grid


def make(config):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))


@pytest.mark.parametrize(
    "optimizer",
    [
        "LAMB",
        "AdamWScheduleFree",
        lambda params, config: torch.optim.Adafactor(params, lr=config["lr"]),
        ("SAM", {"base_optimizer": "SGD", "momentum": 0.9, "rho": 0.1}),
        ("Lookahead", {"base_optimizer": "AdamW", "la_steps": 2}),
    ],
)
def test_arrays_and_single_trials_have_one_history(optimizer, tmp_path):
    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * x[:, 1] > 0).long()
    histories = []
    for mode in ("hfta", "serial"):
        sweep = dnnsuite.sweep(
            make,
            {"lr": [1e-2, 1e-1]},
            (x[:64], y[:64]),
            batch_size=32,
            evaluate=(x[64:], y[64:]),
            epochs=2,
            metric="loss",
            algorithm=Grid(),
            optimizer=optimizer,
            mode=mode,
            out=tmp_path / mode,
        )
        histories.append(sweep.history["loss"].tolist())
        logits = sweep.best_model(x[64:]).detach()
        assert float(torch.nn.functional.cross_entropy(logits, y[64:])) == pytest.approx(min(histories[-1]), abs=1e-6)
    assert histories[0] == histories[1]


def both(parameters, config):
    """Muon for matrices and AdamW for biases, as torch's users write it."""
    parameters = list(parameters)
    muon = torch.optim.Muon([p for p in parameters if p.dim() == 2], lr=config["lr"])
    return [muon, torch.optim.AdamW([p for p in parameters if p.dim() != 2], lr=config["rate"], betas=(0.8, 0.9))]


@pytest.mark.parametrize("mode", ["hfta", "serial"])
def test_a_sweep_trains_each_model_with_several_optimizers(mode, tmp_path):
    """Five trials in arrays of two, so that models take the places of others, each with a schedule of both rates."""
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    start = make({})
    configs = [{"lr": 0.1 / (i + 1), "rate": 0.1 / (i + 2)} for i in range(5)]

    def halved(optimizer, config):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    sweep = dnnsuite.sweep(
        lambda config: copy.deepcopy(start), configs, (x, y), evaluate=(x, y), metric="loss", batch_size=32, epochs=3,
        optimizer=both, scheduler=halved, mode=mode, width=2 if mode == "hfta" else None, out=tmp_path,
    )  # fmt: skip
    expected = []
    for config in configs:
        model = copy.deepcopy(start)
        optimizers = both(model.parameters(), config)
        schedules = [halved(one, config) for one in optimizers]
        for _ in range(3):
            model.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            for one in (*optimizers, *schedules):
                one.step()
        expected.append(float(torch.nn.functional.cross_entropy(model(x), y).detach()))
    last = sweep.history.groupby("trial")["loss"].last().sort_index().tolist()
    assert last == pytest.approx(expected, rel=2e-2)  # of products in bfloat16


def test_what_is_no_list_of_optimizers_is_refused(tmp_path):
    with pytest.raises(Error, match="return torch's optimizer, or a list"):
        dnnsuite.sweep(
            make, {"lr": [0.1]}, (torch.randn(8, 4), torch.randint(2, (8,))), batch_size=8, epochs=1, out=tmp_path,
            optimizer=lambda parameters, config: [1.0],
        )  # fmt: skip


def step_of_sam(model, optimizer, x, y, rho):
    """One step of `optimizer` at the gradient that SAM looks for."""
    params = list(model.parameters())
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), y), params)
    length = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, gradient in zip(moved.parameters(), gradients, strict=True):
            parameter.add_(rho * gradient / length)
    torch.nn.functional.cross_entropy(moved(x), y).backward()
    for parameter, other in zip(params, moved.parameters(), strict=True):
        parameter.grad = other.grad
    optimizer.step()


def test_each_configuration_names_its_optimizer():
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    configs = [
        {"optimizer": "SAM", "base_optimizer": "SGD", "lr": 0.1, "rho": 0.2},
        {"optimizer": "SAM", "base_optimizer": "SGD", "lr": 0.5, "rho": 0.05},
        {"optimizer": "SGD", "lr": 0.3},
        {"optimizer": "Lookahead", "base_optimizer": "SGD", "lr": 0.3, "la_steps": 2},
    ]
    start = make(None)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32)
    sweep = dnnsuite.sweep(
        lambda config: copy.deepcopy(start), configs, batches, evaluate=(x, y), epochs=2, out=False, quiet=True
    )
    for number, config in enumerate(configs):
        model = copy.deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
        slow = [parameter.detach().clone() for parameter in model.parameters()]
        for step, (inputs, targets) in enumerate([*batches, *batches], 1):
            optimizer.zero_grad()
            if config["optimizer"] == "SAM":
                step_of_sam(model, optimizer, inputs, targets, config["rho"])
                continue
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if config["optimizer"] == "Lookahead" and step % 2 == 0:
                with torch.no_grad():
                    for parameter, before in zip(model.parameters(), slow, strict=True):
                        before.lerp_(parameter, 0.8)
                        parameter.copy_(before)
        expected = torch.nn.functional.cross_entropy(model(x), y).item()
        found = sweep.history[sweep.history["trial"] == number]["loss"].iloc[-1]
        assert found == pytest.approx(expected, rel=1e-5)


def test_an_optimizer_around_another_needs_its_name():
    data = torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)
    with pytest.raises(InvalidArgument, match=r"optimizer=\('SAM', \{'base_optimizer': 'SGD'\}\)"):
        dnnsuite.sweep(make, [{"optimizer": "SAM"}, {"optimizer": "SGD"}], data, batch_size=4, epochs=1, out=False)
