# SPDX-License-Identifier: MIT
"""Another array that a loss function closes over, such as a target network: what it holds is read anew in each step."""

import types

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from helpers import assert_near

B, STEPS, CHANGE = 2, 9, 5


class Teacher(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(4, 1), torch.nn.Dropout(0.0)
        self.scale, self.calls, self.last = 1.0, 0, None
        self.of = types.SimpleNamespace(inner=types.SimpleNamespace(scale=1.0), shifts=[0.0])
        self.eval()

    def forward(self, x):
        self.calls += 1
        self.last = self.linear(self.dropout(x)) * self.scale * self.of.inner.scale + self.of.shifts[-1]
        return self.last + 0.1 * self.calls


def set_hook(teacher):
    teacher.linear.register_forward_hook(lambda module, args, output: output * 2)


def output_of(teacher, x):
    output = teacher(x).detach()
    return output.flatten(1).mean(1) if output.dim() == 3 else output.mean()


READS = {
    "an attribute": lambda teacher, x: teacher.scale,
    "a name that is made": lambda teacher, x: getattr(teacher, "sc" + "ale"),
    "an object in an object": lambda teacher, x: teacher.of.inner.scale,
    "a list": lambda teacher, x: teacher.of.shifts[-1],
    "a counter": lambda teacher, x: teacher.calls,
    "its mode": lambda teacher, x: 1.0 + teacher.training,
    "what it computes": output_of,
}
CHANGES = {
    "an attribute": lambda teacher: setattr(teacher, "scale", 3.0),
    "an object in an object": lambda teacher: setattr(teacher.of.inner, "scale", 4.0),
    "a list": lambda teacher: teacher.of.shifts.append(0.5),
    "a counter": lambda teacher: setattr(teacher, "calls", 7),
    "a hook": set_hook,
    "its mode": torch.nn.Module.train,
    "a frozen layer": lambda teacher: teacher.linear.requires_grad_(False),
}


def mean_of_squares(output, y):
    return (output - y).square().flatten(1).mean(1) if output.dim() == 3 else (output - y).square().mean()


def trained(read, change, runner):
    """Return the losses of all steps, and the mode; models of torch's own take them one by one."""
    torch.manual_seed(0)
    students = [torch.nn.Linear(4, 1).double() for _ in range(B)]
    teachers = [Teacher().double() for _ in range(B)]
    x, y = torch.randn(STEPS, 6, 4).double(), torch.randn(6, 1).double()
    if runner:
        array, teacher = dnnsuite.fuse(students), dnnsuite.fuse(teachers)
        teacher.eval()

        def loss(array, x, y):
            factor = read(teacher, x)
            factor = factor.reshape(-1, 1, 1) if isinstance(factor, torch.Tensor) and factor.dim() else factor
            return mean_of_squares(array(x) * factor, y)

        with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.1), loss, threads=1) as steps:
            found = []
            for step in range(STEPS):
                if step == CHANGE:
                    change(teacher)
                found.append(steps.step(dnnsuite.stack(x[step], B=B), dnnsuite.stack(y, B=B)).losses().clone())
            return torch.stack(found), steps.mode
    each = []
    for student, teacher in zip(students, teachers, strict=True):
        optimizer, found = torch.optim.SGD(student.parameters(), lr=0.1), []
        for step in range(STEPS):
            if step == CHANGE:
                change(teacher)
            optimizer.zero_grad()
            value = mean_of_squares(student(x[step]) * read(teacher, x[step]), y)
            value.backward()
            optimizer.step()
            found.append(value.detach())
        each.append(torch.stack(found))
    return torch.stack(each, 1), ""


PAIRS = [
    *((reads, reads) for reads in READS if reads in CHANGES),
    ("a name that is made", "an attribute"),
    *(("what it computes", change) for change in CHANGES),
]


@pytest.mark.parametrize(("reads", "change"), PAIRS)
def test_what_a_loss_reads_of_another_array_is_not_that_of_earlier_steps(reads, change):
    losses, mode = trained(READS[reads], CHANGES[change], runner=True)
    assert_near(losses, trained(READS[reads], CHANGES[change], runner=False)[0], mode)
    assert mode == "captured" or reads == "what it computes"
