"""A model that begins to look at numbers in a late step, around a part that has run one by one from the first."""

import itertools

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from trained_models import check_trained


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.deep, self.count = torch.nn.Linear(4, 4), [], {"a": [0]}, 0

    def forward(self, x):
        y = self.layer(x)
        self.count += 1
        self.deep["a"][0] += 1
        self.seen.append(round(y.detach().abs().max().item(), 6))
        return y * (1 + 0.01 * len(self.seen)) + 0.1 * self.count + 0.2 * self.deep["a"][0]


class Late(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.steps, self.sums = Part(), 0, []

    def forward(self, x):
        self.steps += 1
        y = self.part(x)
        if self.steps > 3:
            self.sums.append(round(y.detach().sum().item(), 6))
            y = y * (1.5 if self.sums[-1] > 0 else 1)
        return y


class LateBranch(Late):
    def forward(self, x):
        self.steps += 1
        y = self.part(x)
        return y * 1.5 if self.steps > 3 and y.detach().sum() > 0 else y


def kept(model):
    return model.part.seen, model.part.deep, model.part.count, model.steps, model.sums


@pytest.mark.parametrize("options", [{}, {"width": 1}, {"width": 2}, {"threads": 2}])
@pytest.mark.parametrize("make", [Late, LateBranch, lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(4), Late())])
def test_a_late_look_leaves_nothing_of_the_first_try(make, options):
    def seen(model):
        return kept(model[1] if isinstance(model, torch.nn.Sequential) else model)

    check_trained(make, B=3, seen=seen, steps=6, **options)


def test_a_late_look_that_no_name_announces_is_refused():
    number = itertools.count()

    class Differs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(4, 4), [next(number)]

        def forward(self, x):
            self.seen.append(1)
            return self.layer(x) * len(self.seen)

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part, self.steps = Differs(), 0

        def forward(self, x):
            self.steps += 1
            y = self.part(x)
            return y * 2 if self.steps > 2 and y.detach().sum() > 0 else y

    with pytest.raises(InvalidArgument, match=r"another way than before .* with what its parts keep already changed"):
        check_trained(Whole, B=3, steps=6)
