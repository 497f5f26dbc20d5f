# SPDX-License-Identifier: MIT
"""Choice of the device: the one asked for, or the best available."""

from __future__ import annotations

from .. import host
from ..errors import InvalidArgument, Unavailable, did_you_mean

DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> str:
    """Return `cpu` or `cuda`. Imports no torch.

    Raises:
        InvalidArgument: `name` is none of DEVICES.
        Unavailable: `cuda` was asked for and is not available.
    """
    if name not in DEVICES:
        near = did_you_mean("cuda" if name.lower() in ("gpu", "nvidia") else name, DEVICES)
        raise InvalidArgument(f"unknown device {name!r}; accepted: {', '.join(DEVICES)}{near}")
    if name == "cpu":
        return name
    if host.gpus() and host.torch_has_cuda():
        return "cuda"
    if name == "cuda":
        reason = "torch is a CPU build" if not host.torch_has_cuda() else "the NVIDIA driver shows no GPU"
        raise Unavailable(f"--device cuda: {reason}", "", "`dnnsuite doctor` says what is missing; --device cpu works")
    return "cpu"
