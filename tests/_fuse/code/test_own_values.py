# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite._fuse.code.late_draws import names_in_code
from dnnsuite._fuse.code.own_values import StandIns, numbers_among


class Model(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate, self.factor, self.name, self.set = rate, rate, str(rate), rate
        self.kind, self.config = rate, {"rate": rate, "size": 1}

    def forward(self, x):
        self.set = self.factor * x + self.config["size"]
        return self.told(x)

    def told(self, x):
        return x if isinstance(self.kind, float) else self.name


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("rate", set()), ("factor", {"factor"}), ("config", set()), ("name", None), ("set", None), ("kind", None)],
)
def test_what_each_model_can_have_of_its_own(name, numbers):
    models = [Model(0.1), Model(0.2)]
    if name == "config":
        models[0].rate = models[1].rate
    assert numbers_among(models, [name], names_in_code(models[:1]), StandIns()) == numbers
