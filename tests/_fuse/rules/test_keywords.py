# SPDX-License-Identifier: MIT
"""Arguments by name: tensors too, and NumPy's names that torch takes for its own."""

import pytest
import torch

import dnnsuite
from helpers import make_models

FIRST = torch.zeros(5, 1, dtype=torch.long)
CALLS = {
    "softmax": lambda x, w: torch.softmax(input=x, dim=1),
    "softmax of an axis": lambda x, w: x.softmax(axis=0),
    "matmul": lambda x, w: torch.matmul(input=x, other=w),
    "addmm": lambda x, w: x.addmm(mat1=x, mat2=w, alpha=2),
    "baddbmm": lambda x, w: x[None].baddbmm(batch1=x[None], batch2=w[None], beta=0.5),
    "max": lambda x, w: torch.max(input=x, dim=0)[0],
    "maximum": lambda x, w: torch.max(input=x, other=-x),
    "cat": lambda x, w: torch.cat(tensors=[x, x], axis=1),
    "where": lambda x, w: torch.where(condition=x > 0, input=x, other=w[:1]),
    "var": lambda x, w: x.var(axis=0, keepdims=True),
    "gather of an axis": lambda x, w: x.gather(axis=1, index=FIRST),
    "index_select of an axis": lambda x, w: x.index_select(axis=1, index=FIRST[0]),
    "unsqueeze of an axis": lambda x, w: x.unsqueeze(axis=1),
    "swapaxes": lambda x, w: x.swapaxes(axis0=0, axis1=1),
    "scatter_add": lambda x, w: x.scatter_add(dim=1, index=FIRST, src=x),
    "add": lambda x, w: torch.add(x1=x, x2=w[:1], alpha=2),
    "chunk": lambda x, w: torch.chunk(input=x, chunks=2, dim=1)[0],
    "dot": lambda x, w: torch.dot(input=x[0], tensor=x[1]),
    "linear": lambda x, w: torch.nn.functional.linear(input=x, weight=w),
}


class Calls(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call, self.weight = call, torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return self.call(x.sin(), self.weight)


@pytest.mark.parametrize("name", CALLS)
def test_named_arguments_are_found(name):
    models, x = make_models(lambda: Calls(CALLS[name]), 2), torch.randn(2, 5, 4)
    array = dnnsuite.fuse(models)
    torch.testing.assert_close(array(x), torch.stack([m(own) for m, own in zip(models, x, strict=True)]))
    assert not any(cover.reason for cover in array.coverage())
