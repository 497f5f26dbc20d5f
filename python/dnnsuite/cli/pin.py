# SPDX-License-Identifier: MIT
"""`dnnsuite pin`: what can be isolated here, equal shares of a machine, and commands that run in them."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import Error, InvalidArgument
from ._late import pin, pin_report
from ._options import File, Json, Real, Text, parameter, with_parameters

SETUP_FAILED = 125  # as env, nohup and docker: the command was never started

Recording = Annotated[File, "Another machine's `pin probe --json`."]
Backend = Annotated[str, "How shares are isolated."]
Require = Annotated[Text, "Weakest isolation to accept."]
Parent = Annotated[Text, "Control group to create groups in, e.g. /a/b.  [$DNNSUITE_CGROUP_PARENT]"]
Words = Annotated[list[str], "The command, after --"]

# How a machine is divided, for every command that does.
_dividing = functools.partial(
    with_parameters,
    more=[
        parameter("slots", str, "Number of shares, or gpus: one per GPU.", "gpus"),
        parameter("locality", str, "auto, strict (cores near the GPU only) or prefer (those first).", "auto"),
        parameter("smt", str, "on, or off for one thread of each core.", "on"),
        parameter("reserve_memory", str, "Memory to keep free for the machine: auto, 5%, 4G or bytes.", "auto"),
        parameter("allow_smt_split", bool, "Give threads of one core to different shares.", False),
        parameter("cpus", Text, "Use these CPUs only, e.g. 0-3,8.  [all allowed]"),
    ],
)


def _make(recording: Path | None = None, cpus: str | None = None, **division: Any) -> pin.Plan:
    topology = pin.Topology.load(recording) if recording else pin.Topology.read()
    return pin.make_plan(topology.restricted(cpus) if cpus else topology, **division)


def probe(parent: Parent = None, as_json: Json = False) -> int:
    """Show what can be isolated here, and how.

    With --json it also prints the topology, to make a plan on another machine.
    """
    topology = pin.Topology.read()
    found: dict[str, Any] = {"hierarchies": pin_report.hierarchies()}
    with pin.Partition(pin.make_plan(topology, 1, allow_smt_split=True), parent=parent) as partition:
        found["pinning"] = partition.record()
        found["verified"] = partition.run(0, ["true"]).verified
    found["topology"] = topology.to_dict()
    print(json.dumps(found) if as_json else pin_report.render_probe(found))
    return 0


@_dividing
def plan(topology: Recording = None, as_json: Json = False, **division: Any) -> int:
    """Print equal shares of this machine, or of a recorded one."""
    made = _make(topology, **division)
    print(json.dumps(made.to_dict()) if as_json else pin_report.render_plan(made))
    return 0


@_dividing
def exec(
    command: Words,
    slot: Annotated[str, "Number of the share, or all."] = "0",
    memory: Annotated[Text, "Memory, e.g. 8G or a number of bytes.  [the share's]"] = None,
    backend: Backend = "auto",
    require: Require = None,
    parent: Parent = None,
    **division: Any,
) -> int:
    """Run a command in one share of the machine.

    The exit status is the command's (128 + signal; 125: it was not started). Works as a prefix, under torchrun or
    mpirun too. A process killed for memory is reported on standard error.
    """
    made = _make(**division)
    which: int | str = int(slot) if slot.isdigit() else slot
    made = _with_memory(made, which, memory)
    (outcome,) = _run(made, [which], command, backend, require, parent, None)
    return _status(outcome)


def _with_memory(made: pin.Plan, which: int | str, memory: str | None) -> pin.Plan:
    from dataclasses import replace

    from ..pin.plan import reserve_bytes

    if memory is None:
        return made
    chosen = made.slot(which)
    changed = replace(chosen, memory_bytes=reserve_bytes(memory, made.all.memory_bytes))
    slots = tuple(changed if each == chosen else each for each in made.slots)
    return replace(made, slots=slots, all=changed if chosen == made.all else made.all)


@_dividing
def run(
    command: Words,
    timeout: Annotated[Real, "Seconds after which commands still running are killed."] = None,
    backend: Backend = "auto",
    require: Require = None,
    parent: Parent = None,
    as_json: Json = False,
    **division: Any,
) -> int:
    """Run the command in every share at once.

    {slot} in the command becomes the number of the share.
    """
    made = _make(**division)
    outcomes = _run(made, list(range(len(made.slots))), command, backend, require, parent, timeout)
    pairs = [(slot.name, outcome.to_dict()) for slot, outcome in zip(made.slots, outcomes, strict=True)]
    print(
        json.dumps({"plan": made.to_dict(), "outcomes": dict(pairs)}) if as_json else pin_report.render_outcomes(pairs)
    )
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def _run(
    made: pin.Plan,
    which: list[int | str] | list[int],
    command: list[str],
    backend: str,
    require: str | None,
    parent: str | None,
    timeout_s: float | None,
) -> list[pin.Outcome]:
    if command[0].startswith("-"):
        raise InvalidArgument(
            f"{command[0]} is not an option of this command; write the command after --, e.g. -- python train.py"
        )
    if timeout_s is not None and not timeout_s > 0:
        raise InvalidArgument(f"--timeout {timeout_s}: must be a positive number of seconds")
    alone = len(which) == 1
    try:
        with pin.Partition(made, backend, require, parent) as partition:
            started = [
                partition.start(
                    each,
                    [word.replace("{slot}", str(each)) for word in command],
                    new_session=not alone,
                    close_files=not alone,
                )
                for each in which
            ]
            told = set(_tell_overlaps(partition, set()))
            outcomes = partition.finish(started, timeout_s)
            _tell_overlaps(partition, told)
            return outcomes
    except Error as error:
        if not alone:
            raise
        print(f"dnnsuite: error: {error}", file=sys.stderr)
        raise typer.Exit(SETUP_FAILED) from error


def _tell_overlaps(partition: pin.Partition, told: set[str]) -> list[str]:
    """Say which other runs have CPUs of this one: neither has its cores to itself."""
    lines = [str(each) for each in partition.overlapping() if str(each) not in told]
    for line in lines:
        print(f"dnnsuite: {line}: neither has its cores to itself; --cpus chooses others", file=sys.stderr, flush=True)
    return lines


def _status(outcome: pin.Outcome) -> int:
    if outcome.oom_killed:
        where = {"group": "its limit", "outside": "a limit outside of it"}.get(outcome.oom_scope, "a limit")
        print(f"dnnsuite: oom_killed: memory ran out by {where}", file=sys.stderr)
    if outcome.survivors:
        print(f"dnnsuite: ended {outcome.survivors} processes that it left behind", file=sys.stderr)
    return outcome.returncode if outcome.returncode >= 0 else 128 - outcome.returncode


def ls(as_json: Json = False) -> int:
    """List the control groups of every run on this machine."""
    found = pin.find()
    if as_json:
        print(json.dumps({"groups": [left.to_dict() for left in found]}))
        return 0
    for left in found:
        print(f"{left.name}  {left.state}  owner {left.owner}  {len(left.processes)} processes")
    return 0


def clean(kill: Annotated[bool, "End their processes first."] = False, as_json: Json = False) -> int:
    """Remove the groups of runs whose supervisor is gone."""
    done = pin.clean(kill)
    if as_json:
        print(json.dumps({"groups": [{**left.to_dict(), "done": what} for left, what in done]}))
    else:
        for left, what in done:
            print(f"{left.name}  {what}")
    return 1 if any(left.state == "stale" and what.startswith("kept") for left, what in done) else 0
