# SPDX-License-Identifier: MIT
"""Turns of an advice's ways that last what a law says: advice for a machine that nobody disturbs, in no time."""

from dnnsuite._runs.turns import Block, take_turns


def seconds(way):
    """Of a step: of one plain model (0), of it with one thread ("alone"), of an array of so many models."""
    return {0: 1.0, "alone": 1.05}.get(way) or 0.8 + 0.05 * way


def play(monkeypatch):
    """Let each turn of `dnnsuite.advise` make one step, and say that it lasted as long as `seconds` has it."""

    def played(ways, goal, baseline, **_):
        def turn(name):
            ways[name](1)
            return Block(1 / seconds(name))

        return take_turns({name: lambda number, name=name: turn(name) for name in ways}, goal, baseline)

    monkeypatch.setattr("dnnsuite.advisor.measurement.take_turns_here", played)
