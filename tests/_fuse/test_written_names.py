# SPDX-License-Identifier: MIT
import torch

from dnnsuite._fuse.code.late_draws import written_names


class Code(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("read", torch.zeros(1).fill_(2))

    def forward(self, x):
        y = x + self.read
        y += self.bias
        self.store()
        self.write(x)
        return self.out(x) if x.dim() else self.fill(x)

    def store(self):
        self.stored = self.count + 1
        self.counted += 1

    def write(self, x):
        self.moved.lerp_(x, 0.1)

    def fill(self, x):
        self.filled[0] = x

    def reset(self):
        self.read.zero_()  # which no forward calls

    def out(self, x):
        torch.add(x, 1, out=self.given)


def test_names_in_methods_that_may_write():
    found = written_names([Code(), torch.nn.ReLU()])
    assert found >= {"stored", "counted", "moved", "filled", "given"}
    assert not found & {"read", "bias", "count"}


def test_torchs_own_norms_write_their_statistics():
    class Norm(torch.nn.BatchNorm1d):
        pass

    assert {"running_mean", "running_var"} <= written_names([Norm(3)])
