# SPDX-License-Identifier: MIT
"""Identity of a run: texts of the values, data and code that decide its numbers, which two processes can compare.

Files that code or values name count by their content, and variables of the environment by their values.
Code counts by what it does: its instructions, constants and names, and those of the user's functions and classes that
it calls, with the globals and attributes that they read; not by its file, its lines or its comments. Installed packages
count by their versions, and by what a script has put into them. What code itself changes as it runs (a counter, a list
that it appends to, a random generator) is its state and no part of what it is. What cannot be compared is named in
`unknown`.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, did_you_mean
from .identity_kinds import CUT, patches
from .identity_walk import Walk
from .surroundings import changed_files, files_named, settings_of_torch

_PATCHES = "patches"  # what a script has put into torch
_SETTINGS = "torch_settings"
FILES = "files"  # that are named


@dataclass
class Identity:
    """Texts of what decides a run's numbers.

    Attributes:
        texts: a text for each part, by name.
        parts: texts of the functions, classes and values that code of a part reaches, by name of the part and place.
        where: file and line of code, by place; of this process only.
        unknown: values that could not be compared.
        names: texts that may name files and folders.
        uses: names by which code may look into the folders for files, or write some.
    """

    texts: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """Size and hash of the files that are named, by name."""
        return files_named(self.names, self.uses)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a file keeps them."""
        return {"texts": self.texts, "parts": self.parts, "unknown": self.unknown, FILES: self.files}

    def changes(self, then: Mapping[str, Any]) -> dict[str, str]:
        """Return what differs from `then`, which :meth:`to_dict` made: a sentence for each part, by its name."""
        names = dict.fromkeys([*then["texts"], *self.texts])
        told = {name: self._told(name, then) for name in names if then["texts"].get(name) != self.texts.get(name)}
        odd = changed_files(then.get(FILES, {}), self.files)
        return told | (
            {FILES: f"{FILES}: other content in {', '.join(odd[:3])}{', …' * (len(odd) > 3)}"} if odd else {}
        )

    def _told(self, name: str, then: Mapping[str, Any]) -> str:
        if name not in then["texts"] or name not in self.texts:
            gone = name in then["texts"]
            parts = (then["parts"] if gone else self.parts).get(name, {}) if name in (_PATCHES, _SETTINGS) else {}
            places = ", ".join(list(parts)[:3])
            return f"{name}{f' ({places})' if places else ''} is {'gone' if gone else 'new'}"
        before, now = then["parts"].get(name, {}), self.parts.get(name, {})
        odd = [place for place in dict.fromkeys([*before, *now]) if before.get(place) != now.get(place)]
        inner = {place.rpartition(".")[0] for place in odd}
        odd = [place for place in odd if place and place not in inner] or odd  # "" is all of it together
        if not odd:
            text, was = self.texts[name], then["texts"][name]
            if CUT in text and text.partition(CUT)[0] == was.partition(CUT)[0]:
                return f"{name} has other content"
            return f"{name} is {text}, was {was}"
        told = [self._place(place, before.get(place), now.get(place)) for place in odd[:3]]
        return f"{name}: {', '.join(told)}{', …' if odd[3:] else ''}"

    def _place(self, place: str, before: str | None, now: str | None) -> str:
        where = f" ({self.where[place]})" if place in self.where else ""
        if before is None or now is None:
            return f"{place}{where} is {'new' if before is None else 'gone'}"
        if before.startswith(("code ", "class ")) and now.split()[0] == before.split()[0]:
            return f"{place or 'it'}{where} has other code or reads other values"
        return f"{place}{where} is {now}, was {before}"


def identity_of(
    given: Mapping[str, Any], plain: Mapping[str, str] | None = None, arrays: dict[int, tuple[Any, str]] | None = None
) -> Identity:
    """Return the identity of a run.

    Args:
        given: values that decide its numbers, by the names that its user knows them by.
        plain: further parts, as texts.
        arrays: texts of arrays that are known already; those that are met are put in, for another call.
    """
    found = Identity(texts=dict(plain or {}))
    versions, known = {"python": platform.python_version()}, {} if arrays is None else arrays
    for name, value in given.items():  # each by itself: what one reaches is no part of another
        walk = Walk(found, known)
        found.texts[name] = walk.whole(name, value)
        versions |= walk.versions
    if "torch" in versions:
        for name, more in ((_PATCHES, patches()), (_SETTINGS, settings_of_torch())):
            if more:
                found.texts[name] = Walk(found, known).whole(name, more)
    found.texts["versions"] = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return found


def cannot_tell(unknown: Sequence[str]) -> str:
    """Say that some values cannot be compared."""
    return f"a resumed run cannot compare these: {', '.join(unknown)}"


def check_same(
    where: Path, then: Mapping[str, Any] | None, now: Identity, allowed: Sequence[str] | None = (), of: str = ""
) -> dict[str, str]:
    """Refuse to continue a run of another identity; return what differs and was allowed to.

    Args:
        where: directory or file of the run.
        then: its identity, from :meth:`Identity.to_dict`; None where an earlier version noted none.
        allowed: names of parts that may differ; None where no mixture makes sense.
        of: owner of the parts, for the message.

    Raises:
        InvalidArgument: another part differs, which is named with its place, a name is of no part, or nothing is known.
    """
    if then is None or "texts" not in then:
        raise InvalidArgument(f"--resume: {where} does not say what decided its numbers{of}; choose another --out")
    for name in allowed or ():
        if name not in {*now.texts, *then["texts"], FILES}:
            raise InvalidArgument(
                f"--allow-changed {name}: no such part{did_you_mean(name, now.texts)}; available: "
                f"{', '.join(now.texts)}"
            )
    changes = now.changes(then)
    names = [name for name in changes if name not in (allowed or ())]
    if names:
        take = f", or accept the change: {' '.join(f'--allow-changed {name}' for name in names)}"
        told = "; ".join(changes[name] for name in names)
        raise InvalidArgument(
            f"--resume: {where} was made with other settings{of}: {told}; give the same settings"
            f"{' or' if allowed is None else ','} choose another --out{'' if allowed is None else take}"
        )
    return changes
