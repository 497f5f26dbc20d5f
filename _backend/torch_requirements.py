# SPDX-License-Identifier: MIT
"""Dependencies that leave the torch of the target environment as it is.

A provider of dynamic metadata for scikit-build-core. Where the target has a torch, any that the operators run on is
asked for, and the torchvision that belongs to it. Where it has none, and in an sdist, the tested versions are: a fresh
machine then gets those, and not whatever is the newest.
"""

import re

import find_torch

TESTED = {"torch": "torch>=2.10,<2.14", "torchvision": "torchvision==0.28.0"}
TO_BUILD_WITH = "torch==2.13.0"


def choose(torch: str | None, has_torchvision: bool) -> dict[str, list[str]]:
    """Requirements that stand for the words "torch" and "torchvision".

    Args:
        torch: the version in the target environment, such as 2.11.0+cu128; None where there is none.
        has_torchvision: true if the target environment has a torchvision.
    """
    if torch is None:
        return {word: [requirement] for word, requirement in TESTED.items()}
    public = torch.partition("+")[0]
    # Each torchvision names one torch, and pip would replace the user's by that one.
    torchvision = [f"torch=={public}", "torchvision" if has_torchvision else _torchvision_of(public)]
    return {"torch": ["torch>=2.10"], "torchvision": torchvision}


def _torchvision_of(torch: str) -> str:
    """torch 2.M and torchvision 0.(M + 15) are released together."""
    found = re.match(r"2\.(\d+)", torch)
    if not found:
        return "torchvision"
    minor = int(found[1]) + 15
    return f"torchvision>=0.{minor},<0.{minor + 1}"


class Provider:
    """Fills `dependencies` and `optional-dependencies` of [project] from the entry of [[tool.dynamic-metadata]]."""

    def __init__(self) -> None:
        self._state = "wheel"

    def build_state(self, build_state: str) -> None:
        """Called by scikit-build-core before `dynamic_metadata`: "sdist", "wheel", "editable" and so on."""
        self._state = build_state

    def dynamic_wheel(self, settings: dict) -> dict[str, bool]:
        """Both fields of a wheel may differ from the sdist's."""
        return {"dependencies": True, "optional-dependencies": True}

    def dynamic_metadata(self, settings: dict, project: dict) -> dict:
        """The two tables of `settings`, with the words "torch" and "torchvision" replaced."""
        folder = None if self._state == "sdist" else find_torch.installed()
        torch = find_torch.version_text(folder) if folder else None
        chosen = choose(torch, torch is not None and find_torch.torchvision_installed())

        def resolve(words: list[str]) -> list[str]:
            return [requirement for word in words for requirement in chosen.get(word, [word])]

        extras = settings["optional-dependencies"]
        return {
            "dependencies": resolve(settings["dependencies"]),
            "optional-dependencies": {name: resolve(words) for name, words in extras.items()},
        }
