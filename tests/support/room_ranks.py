# SPDX-License-Identifier: MIT
"""Rooms of a package by rank and side: which import goes up, and which room has no place."""

from collections.abc import Collection, Iterator

from import_graph import Graph


def unplaced(graph: Graph, rank: dict[str, int], sides: dict[str, set[str]]) -> Iterator[str]:
    """Rooms of which the tables do not say where they belong, and names in the tables that are no room."""
    rooms = {graph.room(module) for module in graph.files} - {"", "__main__"}
    for room in sorted(rooms):
        if room not in rank:
            yield f"{room} has no rank"
        if (number := sum(room in side for side in sides.values())) != 1:
            yield f"{room} is on {number} sides"
    for room in sorted({*rank, *set[str]().union(*sides.values())} - rooms):
        yield f"{room} is no room any more"


def upward(
    graph: Graph, rank: dict[str, int], sides: dict[str, set[str]], apart: Collection[tuple[str, str]]
) -> Iterator[str]:
    """Imports of a room that is not below the importer's, or that is on a side kept `apart` from it."""
    side_of = {room: side for side, rooms in sides.items() for room in rooms}
    for step in graph.all_imports():
        mine, other = graph.room(step.source), graph.room(step.target)
        is_command = step.source.endswith(".__main__")
        if not mine or is_command or other == mine or not graph.is_inside(step.target):
            continue
        if not other:
            if step.name not in ("", "__version__"):
                yield f"{step}: import it from its own module, not from the root"
        elif rank[other] >= rank[mine]:
            yield f"{step}: {other} is not below {mine}"
        elif (side_of[mine], side_of[other]) in apart:
            yield f"{step}: {other} is {side_of[other]}, {mine} is {side_of[mine]}"
