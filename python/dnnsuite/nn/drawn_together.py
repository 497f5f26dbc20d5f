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
        self._buffers, self._home = streams_of(array), home
        self._ramp = torch.tensor([[0, step] for step in range(_AT_ONCE + 1)], device=home).view(-1, 1, 1, 2)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Draw together in this block, on this thread."""
        here = [one for one in (buffers[name] for buffers, name in self._buffers) if one.device == self._home]
        self._streams = [one for one in here if one.shape == here[0].shape]
        self._places = {id(stream): place for place, stream in enumerate(self._streams)}
        self._drawn, self._states, self._settled = [0] * len(self._streams), list[torch.Tensor](), False
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
        return self._state(self._places[id(stream)], -1) if self.pass_over(stream) else None

    def pass_over(self, stream: torch.Tensor) -> bool:
        """Count a draw; False if the stream itself has to be advanced."""
        place = self._places.get(id(stream))
        if place is None:  # perhaps a part of a stream
            self.settle()
        elif not self._settled:
            self._drawn[place] += 1
        return not self._settled

    def settle(self) -> None:
        """Move the streams on to where the draws have come, for code that looks at them."""
        moved = [] if self._settled else [place for place, count in enumerate(self._drawn) if count]
        self._settled = True
        if moved:
            foreach_copy_([self._streams[place] for place in moved], [self._state(place) for place in moved])

    def _state(self, place: int, last: int = 0) -> torch.Tensor:
        """Return (key, step) `[B, 2]` of a stream's next draw, or of its last by -1."""
        draw = self._drawn[place] + last
        while len(self._states) * _AT_ONCE <= draw:
            begin = self._states[-1][_AT_ONCE] if self._states else torch.stack(self._streams)
            self._states.append(begin + self._ramp)
        return self._states[draw // _AT_ONCE][draw % _AT_ONCE][place]
