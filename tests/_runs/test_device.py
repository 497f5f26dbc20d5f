# SPDX-License-Identifier: MIT
import pytest

from dnnsuite import host
from dnnsuite._runs.words import choose_device
from dnnsuite.errors import InvalidArgument, Unavailable


@pytest.mark.parametrize(
    ("gpus", "cuda_torch", "auto"), [(0, False, "cpu"), (1, False, "cpu"), (0, True, "cpu"), (2, True, "cuda")]
)
def test_auto_is_cuda_where_both_halves_are(
    gpus: int, cuda_torch: bool, auto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "gpus", lambda: [host.Gpu("X", 1, "1")] * gpus)
    monkeypatch.setattr(host, "torch_has_cuda", lambda: cuda_torch)
    assert choose_device("auto") == auto
    assert choose_device("cpu") == "cpu"
    if auto == "cuda":
        assert choose_device("cuda") == "cuda"
    else:
        with pytest.raises(Unavailable, match="no GPU" if cuda_torch else "CPU build"):
            choose_device("cuda")


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="unknown device 'tpu'; accepted: auto, cpu, cuda"):
        choose_device("tpu")
