# SPDX-License-Identifier: MIT
import torch

from dnnsuite._step.capture.comparison import State


def test_state_is_put_back_and_exchanged():
    x = torch.arange(4.0)
    state = State([x, x.view(2, 2), torch.zeros(2)])
    assert len(state.tensors) == 2
    x += 1
    state.exchange()
    assert x.tolist() == [0, 1, 2, 3]
    state.exchange()
    assert x.tolist() == [1, 2, 3, 4]
    x.zero_()
    state.put_back()
    assert x.tolist() == [0, 1, 2, 3]
    assert x.untyped_storage()._cdata in state.storages()
