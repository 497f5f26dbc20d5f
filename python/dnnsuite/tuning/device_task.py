# SPDX-License-Identifier: MIT
"""The part of a sweep that the process on one device does."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from .._files import write_json
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings
from ..errors import InvalidArgument
from .devices import REFUSED_FILE
from .engine import NothingTrained
from .sweep import sweep


def task(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """Take part in a sweep on a device: a task of a worker's process."""
    details = spec.details
    torch.set_num_threads(details["threads"])
    with open(details["arguments"], "rb") as file:
        arguments = pickle.load(file)
    siblings.wait()
    try:
        sweep(
            **arguments, out=details["root"], device=details["device"], threads=details["threads"], quiet=True,
        )  # fmt: skip
    except NothingTrained:  # the process that follows says so
        pass
    except InvalidArgument as error:
        write_json(spec.folder / REFUSED_FILE, {"message": str(error)})
        raise
    return {}
