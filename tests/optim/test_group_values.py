# SPDX-License-Identifier: MIT
"""Values of an optimizer's groups: what is refused, and what a group gives back."""

import copy

import pytest
import torch

from dnnsuite import fuse, optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models

B = 3


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


BAD = [
    ("lr", [0.1, 0.2], r"param_groups\[0\]\['lr'\] = \[0.1, 0.2\].*for 3 models"),
    ("lr", -0.1, r"param_groups\[0\]\['lr'\] = -0.1: lr of model 0 is -0.1; it must lie in"),
    ("lr", [0.1, float("nan"), 0.1], "lr of model 1 is nan"),
    ("lr", "0.1", r"param_groups\[0\]\['lr'\] = '0.1'.*one number, or one per model"),
    ("lr", None, r"param_groups\[0\]\['lr'\] = None"),
    ("lr", 1j, r"param_groups\[0\]\['lr'\] = 1j"),
    ("lr", torch.tensor([1j, 1j, 1j]), "is complex"),
    ("betas", 0.9, "betas must be two values"),
    ("betas", (0.8, 1.5), "beta2 of model 0 is 1.5"),
    ("maximize", "yes", r"param_groups\[0\]\['maximize'\] = 'yes': maximize is True or False"),
    ("amsgrad", [True, False, True], "amsgrad is True or False, for all models"),
    ("max_grad_norm", -1, "max_grad_norm of model 0 is -1.0"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD, ids=[f"{n} {v}" for n, v, _ in BAD])
def test_a_bad_value_is_named_and_changes_nothing(name, value, message):
    array = fuse(make_models(mlp, B, torch.float64))
    optimizer = optim.Adam(array.parameters(), lr=[0.1, 0.2, 0.3])
    before = copy.deepcopy(optimizer.state_dict()["param_groups"])
    with pytest.raises(InvalidArgument, match=message):
        optimizer.param_groups[0].update({"eps": 1e-3, name: value})
    assert repr(optimizer.state_dict()["param_groups"]) == repr(before)


def test_a_group_or_a_state_that_does_not_fit_is_refused():
    array = fuse(make_models(mlp, B, torch.float64))
    first, second, *_ = array.parameters()
    optimizer = optim.Adam([first], lr=0.1)
    with pytest.raises(InvalidArgument, match="lr has shape"):
        optimizer.add_param_group({"params": [second], "lr": [1, 2]})
    assert len(optimizer.param_groups) == 1
    with pytest.raises(InvalidArgument, match=r"exp_avg of a parameter \[3, 5, 4\] is \[2\]"):
        optimizer.state[first]["exp_avg"] = torch.zeros(2)
    with pytest.raises(InvalidArgument, match="group 0 of the state has no beta1"):
        optimizer.load_state_dict(torch.optim.Adam([torch.zeros(3)]).state_dict())


def test_what_a_step_needs_cannot_be_lost():
    array = fuse(make_models(mlp, B, torch.float64))
    first, *_ = array.parameters()
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with pytest.raises(InvalidArgument, match=r"lr cannot be taken out of param_groups\[0\]"):
        del optimizer.param_groups[0]["lr"]
    with pytest.raises(InvalidArgument, match="on_nan is 'no'"):
        optimizer.on_nan = "no"
    optimizer.on_nan = "skip"
    first.grad = torch.full_like(first, float("nan"))
    optimizer.step()
    assert optimizer.skipped.tolist() == [1] * B
    array.drop([1])
    for p in array.parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(
        InvalidArgument, match=r"that of 2 models, and this optimizer has 3.*array.drop\(1, optimizer\)"
    ):
        optimizer.step()
    optimizer.select([0, 2])
    optimizer.step()


def test_an_operators_refusal_is_a_sentence():
    parameter = torch.nn.Parameter(torch.zeros(2, 1).expand(2, 5))
    optimizer = optim.SGD([parameter], lr=0.1)
    parameter.grad = torch.ones(2, 5)
    with pytest.raises(InvalidArgument, match=r"^the optimizer cannot step: params\[0\] is written to") as told:
        optimizer.step()
    assert ".hpp" not in str(told.value)


def test_behaves_as_torchs_dict():
    array = fuse(make_models(mlp, B, torch.float64))
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    group = optimizer.param_groups[0]
    assert "betas" in group
    assert "betas" in optimizer.defaults
    assert "momentum" not in group
    assert [beta.tolist() for beta in group["betas"]] == [[0.9] * B, [0.999] * B]
    assert group.get("betas")[0].tolist() == [0.9] * B
    assert group.get("other", 7) == 7
    assert float(group["lr"]) == 0.1
    assert f"{group['lr']:.2e}" == "1.00e-01"
    group["lr"] = [1, 2, 3]
    with pytest.raises(InvalidArgument, match=r"lr differs from model to model.*lr_scheduler"):
        float(group["lr"])
    assert f"{group['lr']:.1f}" == "[1.0, 2.0, 3.0]"
    assert group.setdefault("extra", 4) == group.pop("extra") == 4
    assert "extra" not in group
    group |= {"eps": 1e-4}
    assert group["eps"].tolist() == [1e-4] * B
    kept = group["lr"]
    group["initial_lr"] = kept
    group["lr"].mul_(2)
    assert group["initial_lr"].tolist() == [1, 2, 3]
    with pytest.raises(KeyError, match="nothing"):
        group["nothing"]
