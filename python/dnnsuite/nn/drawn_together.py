# SPDX-License-Identifier: MIT
"""Draws of all streams of a step at once: three kernels for their states, however many layers drop.

On a GPU a copy of a stream and its advance are two kernels for each layer, which take as long as the dropout itself. In
a step that becomes a CUDA graph, the states of the next draws of all streams are made by one sum when the first is
asked for, each draw is a view of them, and the streams are moved on by one call at the end of the step.

Nothing else may look at a stream meanwhile. What does, as a model that runs alone on its part of one, calls `settle`:
the rest of the step then draws as others do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .._torch import foreach_copy_
from .random_streams import draw_by, streams_of

_AT_ONCE = 16  # draws of each stream


class DrawnTogether:
    """Streams of an array, for steps in which they are drawn from together.

    Args:
        array: the streams of its layers and functions, in the buffers that it has now.
        home: device of the draws; other streams are drawn from as ever.
    """

    def __init__(self, array: torch.nn.Module, home: torch.device) -> None:
        self._buffers = streams_of(array)
        self._home = home
        steps = [[0, step] for step in range(_AT_ONCE + 1)]
        self._ramp = torch.tensor(steps, dtype=torch.int64, device=home).view(-1, 1, 1, 2)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Draw together in this block, on this thread."""
        here = [one for one in (buffers[name] for buffers, name in self._buffers) if one.device == self._home]
        alike = [one for one in here if one.shape == here[0].shape]
        self._streams: list[torch.Tensor] | None = alike
        self._places = {id(stream): place for place, stream in enumerate(alike)}
        self._drawn, self._states = [0] * len(alike), list[torch.Tensor]()
        with draw_by(self):
            try:
                yield
            except BaseException:
                with contextlib.suppress(RuntimeError):  # of a device that has refused before
                    self.settle()
                raise
            self.settle()

    def draw(self, stream: torch.Tensor) -> torch.Tensor | None:
        """Return (key, step) `[B, 2]` of the next draw; None if the stream itself has to be advanced."""
        place = self._counted(stream)
        return None if place is None else self._state(self._drawn[place] - 1)[place]

    def pass_over(self, stream: torch.Tensor) -> bool:
        """Leave a draw out; False if the stream itself has to be advanced."""
        return self._counted(stream) is not None

    def settle(self) -> None:
        """Move the streams on to where the draws have come, for code that looks at them."""
        streams, self._streams = self._streams, None
        moved = [place for place, count in enumerate(self._drawn) if count] if streams else []
        if moved:
            assert streams is not None
            states = [self._state(self._drawn[place], streams)[place] for place in moved]
            foreach_copy_([streams[place] for place in moved], states)

    def _counted(self, stream: torch.Tensor) -> int | None:
        if self._streams is None:
            return None
        place = self._places.get(id(stream))
        if place is None:  # perhaps a part of a stream
            self.settle()
        else:
            self._drawn[place] += 1
        return place

    def _state(self, draw: int, streams: list[torch.Tensor] | None = None) -> torch.Tensor:
        """Return (key, step) `[streams, B, 2]` of a draw by its number in this step."""
        while len(self._states) * _AT_ONCE <= draw:
            begin = self._states[-1][_AT_ONCE] if self._states else torch.stack(streams or self._streams or [])
            self._states.append(begin + self._ramp)
        return self._states[draw // _AT_ONCE][draw % _AT_ONCE]
