# SPDX-License-Identifier: MIT
"""HFTA's own unit tests against dnnsuite, from a checkout named by DNNSUITE_HFTA; some files take minutes."""

import os
from pathlib import Path

import pytest

import hfta_adapter

ROOT = os.environ.get("DNNSUITE_HFTA", "")
FILES = (
    *("ops/batchnorm", "ops/conv", "ops/dropout2d", "ops/linear", "ops/multiheadattention"),
    *("ops/normalization", "ops/pooling", "ops/sparse"),
    *("optim/adadelta", "optim/adam", "optim/lr_scheduler"),
)
# Rows that fail for a reason of their own, by a part of their name.
BROKEN = {"testcase_StepLR_partially_fused": "the test uses names that it never defines"}


@pytest.mark.skipif(not ROOT, reason="DNNSUITE_HFTA names no checkout of github.com/UofT-EcoSystem/hfta")
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FILES)
def test_file(name):
    failures, passed = [], 0
    for row, error in hfta_adapter.run(Path(ROOT, "hfta", f"{name}_test.py")):
        if any(part in row for part in BROKEN):
            continue
        if error is None:
            passed += 1
        else:
            failures.append(f"{row}: {type(error).__name__}: {str(error).strip()[:300]}")
    print(f"{name}: {passed} of {passed + len(failures)} rows pass")
    assert not failures, f"{passed} rows pass, {len(failures)} fail:\n" + "\n".join(failures)


def test_the_adapter_sees_a_wrong_result(tmp_path):
    """A test file in HFTA's style, with one row that must fail."""
    test = tmp_path / "own_test.py"
    test.write_text(
        """
import torch
from hfta.ops import get_hfta_op_for, testcase_automator, assert_allclose, dump_error_msg

def testcase(B=2, error=0.0):
  layers = [torch.nn.Linear(3, 4) for _ in range(B)]
  fused = get_hfta_op_for(torch.nn.Linear, B=B)(3, 4)
  for b in range(B):
    fused.snatch_parameters(layers[b], b)
  x = torch.rand(B, 5, 3)
  expected = torch.stack([layer(part) for layer, part in zip(layers, x)]) + error
  assert tuple(fused.weight.data.shape) == (B, 3, 4) and tuple(fused.bias.data.shape) == (B, 1, 4)
  try:
    assert_allclose(fused(x).detach().numpy(), expected.detach().numpy(), rtol=1e-4)
  except AssertionError as e:
    dump_error_msg(e)

if __name__ == '__main__':
  testcase_automator(testcase, {'B': [1, 3], 'error': [1.0], 'device': []})
"""
    )
    results = dict(hfta_adapter.run(test))
    assert [results["testcase(B=1)"], results["testcase(B=3)"]] == [None, None]
    assert isinstance(results["testcase(error=1.0)"], hfta_adapter.Mismatch)
