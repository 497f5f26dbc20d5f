# SPDX-License-Identifier: MIT
"""Spaces that ship for the declared workloads: those of HFHT's two examples, MobileNet and PointNet."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import read_json
from ..errors import InvalidArgument, Unavailable, reason
from ..jobs import Workload
from .space import Range, checked_space, space_from_plain

_ADAM = {
    "lr": {"uniform": [1e-4, 1e-2]},
    "beta1": {"uniform": [0.001, 0.999]},
    "beta2": {"uniform": [0.001, 0.999]},
    "weight_decay": {"uniform": [0.0, 0.5]},
    "gamma": {"uniform": [0.1, 0.9]},
    "step_size": [5, 10, 20, 40],
}
#: HFHT's spaces by the beginning of a job's name: fusible values, then those that only models of equal ones can share.
HFHT: Mapping[str, Mapping[str, Any]] = {
    "mobilenet": {**_ADAM, "batch_size": [1024, 2048], "version": ["v2", "v3l"]},
    "pointnet": {**_ADAM, "batch_size": [8, 16, 32], "feature_transform": [True, False]},
}
#: What is smaller in a first look on a CPU.
_QUICK: Mapping[str, Mapping[str, Any]] = {
    "mobilenet": {"batch_size": [8, 16], "version": ["v3s"]},
    "pointnet": {"batch_size": [8, 16]},
}
_DRAWN = 256  # configurations of a job without a space, by its own sampler, or more where a search begins more


def space_of(workload: Workload, preset: str, seed: int, trials: int = 0) -> dict[str, Range] | list[dict[str, Any]]:
    """HFHT's space of a job, or configurations that the job's own sampler draws, enough for so many `trials`."""
    family = next((name for name in HFHT if workload.name.startswith(name)), None)
    if family is None:
        generator = random.Random(seed)
        return [dict(workload.drawn(generator)) for _ in range(max(_DRAWN, trials))]
    plain = {**HFHT[family], **(_QUICK[family] if preset == "quick" else {})}
    if workload.name == "pointnet_seg":
        plain["batch_size"] = [8, 16]
    return space_from_plain(plain)


def read_space(path: Path) -> dict[str, Range] | list[dict[str, Any]]:
    """Return the space in a YAML or JSON file: ranges by name, or a list of configurations.

    Raises:
        InvalidArgument: the file is empty or damaged; the message names it.
        Unavailable: the file is YAML, and PyYAML is not installed.
    """
    if path.suffix == ".json":
        plain = read_json(path)
    else:
        plain = _read_yaml(path)
    if isinstance(plain, list):
        if not plain or not all(isinstance(config, Mapping) for config in plain):
            raise InvalidArgument(f"{path}: the space is empty, or not a list of configurations")
        return [dict(config) for config in plain]
    return checked_space(space_from_plain(plain or {}, str(path)))


def _read_yaml(path: Path) -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise Unavailable(
            f"{path} is YAML, and PyYAML is not installed", remedy="pip install 'dnnsuite[training]'"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc,unused-ignore]
        """Loader that reads 1e-3 as a number, as YAML 1.2 does."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (OSError, yaml.YAMLError) as error:
        raise InvalidArgument(f"{path}: {reason(error)}") from error
