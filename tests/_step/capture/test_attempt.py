# SPDX-License-Identifier: MIT
from types import SimpleNamespace

from dnnsuite._step.capture.exchange import NumberedReplay, find_numbered


def test_the_replay_is_the_first_whose_step_takes_the_numbers():
    replays = [
        NumberedReplay(SimpleNamespace(values=values), SimpleNamespace(guard=None), [])
        for values in (lambda numbers: None, lambda numbers: [*numbers, 1])
    ]
    assert find_numbered(replays, [2], []) == (replays[1], [2, 1])
    assert find_numbered(replays[:1], [2], []) is None
    replays[1].read.append(SimpleNamespace(holds=lambda inputs: False))
    assert find_numbered(replays, [2], []) is None
