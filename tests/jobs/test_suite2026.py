# SPDX-License-Identifier: MIT
"""Workloads of today: targets see what breaks them, arrays are equal, paper sizes are those of the sources."""

import dataclasses
from typing import Any

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig
from dnnsuite.jobs.suite2026 import decoder, ppo
from dnnsuite.suites import SUITES

_TEXT = {"layers": 1, "width": 16, "heads": 2, "kv_heads": 1, "ff": 16, "length": 16}
TINY: dict[str, dict[str, Any]] = {
    "gpt": _TEXT,
    "lora": {**_TEXT, "rank": 2, "base_steps": 2},
    "moe": _TEXT,
    "mamba": {**_TEXT, "head": 8, "state": 4, "chunk": 8},
    "dpo": {**_TEXT, "length": 8},
    "dit": {"layers": 1, "width": 16, "heads": 2, "patch": 8},
    "dcnv2": {"tables": 4, "rows": 50, "size": 4, "rank": 4, "bottom": "8", "top": "8"},
    "ppo": {"width": 8, "moves": 32},
}
ARRAYS = [name for name in TINY if name != "ppo"]
# Parameters of the sources, in millions: modded-nanogpt, a Llama of 8 B with its adapters, Mamba-2, DiT-XL/2, ...
PAPER = {
    "gpt": 124,
    "lora": 7_547,
    "moe": 402,
    "mamba": 129,
    "dpo": 1_750,
    "dit": 2 * 675,
    "dcnv2": 1_990,
    "ppo": 0.135,
}


def set_up(name: str, kind: Any = None, **config: Any) -> Any:
    options = {**TINY[name], **config.pop("options", {})}
    job = (kind or jobs.get(name))(JobConfig(**{"batch_size": 8, "options": options, **config}))
    job.setup()
    return job


def quick(name: str, changes: dict[str, Any], steps: int | None = None) -> dict[str, Any]:
    """Train at the quick preset with something changed; what is learned beside the target."""
    workload = dataclasses.replace(jobs.get(name).workload, **changes)
    kind = type(name, (jobs.DeclaredJob,), {"workload": workload, "name": name})
    own = workload.settings("quick") | ({"base_steps": 2} if name == "lora" else {})
    repeat, number, size = (own.pop(key) for key in ("repeat", "number", "batch_size"))
    job = kind(JobConfig(batch_size=size, options=own, steps=repeat * number))
    job.setup()
    for _ in range(repeat * number if steps is None else steps):
        job.step()
    found = job.quality("quick", job.metrics())
    assert found is not None
    return found


def test_the_suite_has_these_jobs() -> None:
    assert set(SUITES["2026"]) == set(TINY)


@pytest.mark.parametrize("name", ["dcnv2", "ppo"])  # of the others a whole run takes longer than a test may
def test_a_sound_one_reaches_its_target(name: str) -> None:
    assert quick(name, {})["reached"]


@pytest.mark.parametrize("name", TINY)
def test_without_an_update_the_target_is_missed(name: str) -> None:
    assert not quick(name, {}, steps=0)["reached"]


@pytest.mark.parametrize("name", TINY)
def test_with_the_wrong_sign_the_target_is_missed(name: str) -> None:
    loss = jobs.get(name).workload.loss
    assert not quick(name, {"loss": lambda model, *batch: -loss(model, *batch)}, steps=8)["reached"]


def test_with_shuffled_labels_the_target_is_missed() -> None:
    loss = jobs.get("dcnv2").workload.loss

    def shuffled(model: Any, numbers: torch.Tensor, clicks: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return loss(model, numbers, clicks[torch.randperm(len(clicks))], *values)

    assert not quick("dcnv2", {"loss": shuffled})["reached"]


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_equal_to_models_alone(name: str) -> None:
    kind = jobs.get(name, swept=True)
    hyper = {key: [value / 2, value] for key, value in kind.workload.hyper.items()}
    options = TINY[name]
    config = JobConfig(B=2, batch_size=8, seed=1, options=options, hyper=hyper)
    assert kind.check_equality(config, steps=4)["passed"]


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_has_the_measures_of_its_models(name: str) -> None:
    array = set_up(name, B=2, seed=1)
    for _ in range(3):
        array.step()
    array.synchronize()
    for index, value in enumerate(array.held_out_metric()):
        alone = set_up(name, seed=1 + index)
        for _ in range(3):
            alone.step()
        assert alone.held_out_metric()[0] == pytest.approx(value, rel=1e-3, abs=0.005)


def test_an_agent_is_no_array() -> None:
    with pytest.raises(InvalidArgument, match=r"job ppo makes its batches with the model, .*: B must be 0, got 2"):
        set_up("ppo", B=2)


@pytest.mark.parametrize("name", PAPER)
def test_paper_sizes_are_the_sources(name: str) -> None:
    workload = jobs.get(name).workload
    options = {**workload.options, **workload.presets["paper"].options}
    with torch.device("meta"):
        model = workload.model(options, workload.hyper)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(PAPER[name], rel=0.05)


def test_operations_are_about_six_for_each_parameter_of_a_token() -> None:
    workload = jobs.get("gpt").workload
    options = {**workload.options, **workload.presets["paper"].options}
    assert workload.flops_per_item(options) == pytest.approx(6 * 124e6 + 12 * 12 * 768 * 512, rel=0.02)


def test_what_was_held_out_is_not_trained_on() -> None:
    config = JobConfig(batch_size=64)
    held, _ = decoder.held_out_text(config, decoder.SIZES).batch(0)
    tokens, _ = decoder.tokens_of(config, 256)
    split = len(tokens) * 9 // 10
    batches = decoder.text(config, decoder.SIZES)
    seen = {bytes(row.tolist()) for i in range(8) for row in batches.batch(i)[0]}
    whole = bytes(tokens[:split].tolist())
    assert all(row in whole for row in seen)
    assert not any(bytes(row.tolist()) in whole for row in held)


def test_a_pole_that_is_pushed_the_way_it_leans_stands_longer() -> None:
    class Leaning(torch.nn.Module):
        def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, None]:
            right = states[:, 2] + 0.5 * states[:, 3]
            return torch.stack([-right, right], -1), None

    class Always(torch.nn.Module):
        def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, None]:
            return torch.tensor([[0.0, 1.0]]).expand(len(states), 2), None

    (states,) = ppo.starts(JobConfig(), {}).batch(0)
    assert ppo.episode_length(Leaning(), states) > 150
    assert ppo.episode_length(Always(), states) < 20


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt", {"heads": 3}, "heads 3 must divide width 16"),
        ("gpt", {"length": 400_000}, "the text has .* tokens to train on, too few"),
        ("mamba", {"chunk": 5}, "length 16 is no multiple of the chunk 5"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        set_up(name, options=options).step()


def test_shards_of_tokens_are_read_and_damaged_ones_refused(tmp_path) -> None:
    shard = tmp_path / "part.bin"
    tokens = torch.arange(5000) % 300
    shard.write_bytes(bytes(4 * 256) + tokens.to(torch.int32).numpy().astype("uint16").tobytes())
    config = JobConfig(dataroot=str(tmp_path))
    assert torch.equal(decoder.tokens_of(config, 300)[0], tokens.int())
    with pytest.raises(InvalidArgument, match="has the token 299: set vocab to 300 or more"):
        decoder.tokens_of(config, 256)
    shard.write_bytes(b"12345")
    with pytest.raises(InvalidArgument, match=r"part.bin is no shard of tokens"):
        decoder.tokens_of(config, 300)
