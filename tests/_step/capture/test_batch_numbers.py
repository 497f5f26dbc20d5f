# SPDX-License-Identifier: MIT
import torch

from dnnsuite._step.capture.numbers import BatchNumbers, on_filled


def test_numbers_are_read_and_replaced_in_order():
    x, numbers = torch.ones(2), BatchNumbers()
    batch = (x, {"beta": 0.5, "on": True}, [x, x], 3)
    numbers.take((0.5, 3))
    assert numbers()[0] == (0.5, 3)
    assert numbers.filled(batch) is batch
    for path, value, put in list(numbers.places()):
        assert value == numbers()[path[0]][path[1]]
        put(value + 1)
    filled = numbers.filled(batch)
    assert filled[1] == {"beta": 1.5, "on": True}
    assert filled[3] == 4
    assert filled[2][0] is x
    assert on_filled(lambda batch, hyper: (batch[3], hyper), numbers)(batch, "hyper") == (4, "hyper")
    numbers.take((7.0,))
    assert numbers.held() == (7.0,)
    assert numbers.filled(batch) is batch
