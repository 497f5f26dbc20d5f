# SPDX-License-Identifier: MIT
"""torchvision imports beside any torch, and is asked for politely where it is missing."""

import importlib.util
import subprocess
import sys

import pytest

from dnnsuite import data
from dnnsuite.errors import Unavailable

installed = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="pip install torchvision==0.28.0"
)
PROGRAM = """
import torch
from dnnsuite import data
{before}
torchvision = data.import_torchvision()
assert data.import_torchvision() is torchvision
model = torchvision.models.mobilenet_v3_small(num_classes=3).eval()
assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 3)
from torchvision.transforms import v2
assert v2.Resize(4)(torch.zeros(3, 8, 8)).shape == (3, 4, 4)
boxes, scores = torch.tensor([[0., 0., 1., 1.]]), torch.ones(1)
try:
    print(torchvision.ops.nms(boxes, scores, 0.5).tolist())
except RuntimeError as error:
    print("says:", str(error)[:80])
"""
AFTER_A_FAILURE = """
try:
    import torchvision
except RuntimeError:
    pass
"""


@installed
@pytest.mark.parametrize("before", ["", AFTER_A_FAILURE], ids=["first", "after a failed import"])
def test_models_and_transforms_work(before):
    program = PROGRAM.format(before=before)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[0]" or "Couldn't load custom C++ ops" in result.stdout


def test_says_how_to_install_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"torchvision.*pip install torchvision==0\.28\.0"):
        data.import_torchvision()
