# SPDX-License-Identifier: MIT
"""The schedule of observed steps."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..errors import InvalidArgument


class Phase(enum.Enum):
    """State of the instruments in one step."""

    OFF = "off"  # nothing is observed: what the overhead is measured against
    WARMUP = "warmup"  # instruments run, what they see is dropped: it holds their own start-up
    ACTIVE = "active"
    LAST = "last"  # active, and the window closes after it

    @property
    def on(self) -> bool:
        """True if instruments run."""
        return self is not Phase.OFF

    @property
    def kept(self) -> bool:
        """True if their results are kept."""
        return self in (Phase.ACTIVE, Phase.LAST)


@dataclass(frozen=True)
class Schedule:
    """Off for `skip_first` steps, then cycles of `wait` off, `warmup` and `active`; `repeat` 0 repeats to the end."""

    skip_first: int
    wait: int
    warmup: int
    active: int
    repeat: int

    def __call__(self, step: int) -> Phase:
        """Return the phase of step `step`, counted from 0."""
        if step < self.skip_first:
            return Phase.OFF
        cycle, within = divmod(step - self.skip_first, self.wait + self.warmup + self.active)
        if self.repeat and cycle >= self.repeat:
            return Phase.OFF
        if within < self.wait:
            return Phase.OFF
        if within < self.wait + self.warmup:
            return Phase.WARMUP
        return Phase.LAST if within == self.wait + self.warmup + self.active - 1 else Phase.ACTIVE

    @property
    def first_active(self) -> int:
        """First step that is kept."""
        return self.skip_first + self.wait + self.warmup

    @property
    def steps(self) -> int | None:
        """Number of steps until the last window closes; None without an end."""
        cycle = self.wait + self.warmup + self.active
        return self.skip_first + self.repeat * cycle if self.repeat else None


def schedule(
    skip_first: int = 0,
    wait: int = 0,
    warmup: int = 0,
    active: int | None = None,
    repeat: int = 0,
    *,
    start_iteration: int | None = None,
    profile_iterations: int | None = None,
) -> Schedule:
    """Choose the steps to observe, in the words of `torch.profiler.schedule` or in those of TBD's scripts.

    Args:
        skip_first: steps before the first cycle, not observed.
        wait, warmup, active: steps of each cycle without instruments, with instruments whose results are dropped,
            and kept. The overhead is measured against the waiting steps, so it needs `wait`.
        repeat: number of cycles; with 0 they are repeated until the loop ends.
        start_iteration: the first iteration that is kept, instead of `skip_first` and `wait`.
        profile_iterations: number of iterations that are kept, once, instead of `active` and `repeat`.

    Raises:
        InvalidArgument: a number is negative, no step is active, or both kinds of arguments are given.

    >>> from dnnsuite import profiler
    >>> profiler.schedule(wait=2, warmup=3, active=10)
    Schedule(skip_first=0, wait=2, warmup=3, active=10, repeat=0)
    """
    if start_iteration is not None or profile_iterations is not None:
        if skip_first or wait or repeat or active is not None:
            raise InvalidArgument(
                "start_iteration and profile_iterations stand for skip_first, wait, active and repeat: give one or "
                "the other"
            )
        start = _whole("start_iteration", 10 if start_iteration is None else start_iteration)
        kept = _whole("profile_iterations", 10 if profile_iterations is None else profile_iterations, 1)
        warm = min(_whole("warmup", warmup), start)
        return Schedule(start - warm, 0, warm, kept, 1)
    if active is None:
        raise InvalidArgument("schedule needs active=..., how many steps of a cycle are kept")
    return Schedule(
        _whole("skip_first", skip_first),
        _whole("wait", wait),
        _whole("warmup", warmup),
        _whole("active", active, 1),
        _whole("repeat", repeat),
    )


def _whole(name: str, value: int, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidArgument(f"{name} must be a whole number, {least} or more; got {value!r}")
    return value
