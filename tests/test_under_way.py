# SPDX-License-Identifier: MIT
"""Whoever reads or changes an array waits for the steps under way."""

import copy
import threading
import weakref

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite._under_way import announce, finish


class Waiting:
    def __init__(self):
        self.times = 0

    def wait(self):
        self.times += 1


class Owner:
    pass


def test_all_who_announced_are_waited_for_as_long_as_they_live():
    owner, first, second = Owner(), Waiting(), Waiting()
    finish(owner)
    announce(owner, first.wait)
    announce(owner, second.wait)
    finish(owner)
    finish(Owner())
    assert (first.times, second.times) == (1, 1)
    watched = weakref.ref(first)
    del first
    assert watched() is None
    finish(owner)
    assert second.times == 2


def test_who_announces_again_is_waited_for_once():
    owner, one = Owner(), Waiting()
    for _ in range(3):
        announce(owner, one.wait)
    finish(owner)
    assert one.times == 1


READERS = {
    "forward": lambda array, opt: array(torch.ones(2, 3, 4)),
    "state_dict": lambda array, opt: array.state_dict(),
    "model": lambda array, opt: array[0],
    "unfuse": lambda array, opt: dnnsuite.unfuse(array),
    "edit": lambda array, opt: array.drop(1, opt),
    "load": lambda array, opt: array.load_state_dict(array.state_dict()),
    "rng": lambda array, opt: nn.get_rng_state(array),
    "optimizer": lambda array, opt: opt.state_dict(),
    "freeze": lambda array, opt: opt.freeze(0),
    "to_model": lambda array, opt: opt.to_model(
        0, [torch.nn.Parameter(torch.zeros(3, 4)), torch.nn.Parameter(torch.zeros(3))]
    ),
    "dtype": lambda array, opt: array.double(),
    "children": lambda array, opt: list(array.children()),
    "apply": lambda array, opt: array.apply(lambda module: None),
    "parameters of a group": lambda array, opt: opt.param_groups[0]["params"],
    "models that step": lambda array, opt: opt.active,
    "skipped steps": lambda array, opt: opt.skipped,
    "states": lambda array, opt: list(opt.state.values()),
    "state of a parameter": lambda array, opt: opt.state.get("none"),
    "copy of an optimizer": lambda array, opt: copy.deepcopy(opt),
    "text of an optimizer": lambda array, opt: repr(opt),
}


GO = threading.Lock()


def _held(x):
    """Wait for `GO`: an operator of a replayed step, which runs in a thread of the runner."""
    with GO:
        return x.clone()


LIBRARY = torch.library.Library("dnnsuite_tests", "DEF")
LIBRARY.define("held(Tensor x) -> Tensor")
LIBRARY.impl("held", _held, "CPU")
HELD = torch.ops.dnnsuite_tests.held.default


def losses(array, x):
    return array(HELD(x)).flatten(1).sum(1)


@pytest.mark.parametrize("name", READERS)
def test_readers_wait_for_steps_under_way(name):
    array = dnnsuite.fuse([torch.nn.Linear(4, 3) for _ in range(2)])
    opt = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, opt, losses, threads=2, width=1) as runner:
        for _ in range(6):
            runner.step(torch.ones(2, 3, 4))
        runner.synchronize()
        assert runner.mode == "captured"
        GO.acquire()
        threading.Timer(0.2, GO.release).start()
        step = runner.step(torch.ones(2, 3, 4))
        assert step.left > 0
        READERS[name](array, opt)
        assert step.left == 0
