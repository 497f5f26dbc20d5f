# SPDX-License-Identifier: MIT
"""Workloads of today: targets see what breaks them, arrays are equal, paper sizes are those of the sources."""

import dataclasses
from typing import Any

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig
from dnnsuite.jobs.suite2026 import conformer, decoder, detector, grpo, molecules, ppo
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
    "grpo": {**_TEXT, "prompt": 3, "examples": 2},
    "vit": {"layers": 1, "width": 16, "heads": 2, "patch": 16},
    "convnext": {"depths": "1 1 1 1", "width": 4},
    "unet": {"width": 4, "pools": 1},
    "detector": {"width": 32, "size": 32},
    "conformer": {"layers": 1, "width": 16, "heads": 2, "mel": 20, "frames": 48},
    "molecules": {"steps": 1, "width": 16, "atoms": 8},
    "rgat": {"width": 8, "nodes": 300, "fan": "1 1"},
}
ARRAYS = [name for name in TINY if name not in ("ppo", "grpo")]
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
    "grpo": 1_750 / 2,  # the policy of dpo
    "vit": 22.05,
    "convnext": 2 * 28.59,  # with the average
    "unet": 7.756,  # fastMRI's own
    "detector": 32.3,  # torchvision's FCOS
    "conformer": 25.8,  # of the blocks' formula; AlgoPerf's own also has the batch norms
    "molecules": 2.44,  # of the formula
    "rgat": 5.76,  # of the formula; MLPerf's 25 M are of more kinds of edges
}


def set_up(name: str, kind: Any = None, **config: Any) -> Any:
    options = {**TINY[name], **config.pop("options", {})}
    given = {"batch_size": 8, "options": options, "data": "synthetic", **config}
    job = (kind or jobs.get(name))(JobConfig(**given))
    job.setup()
    return job


def quick(name: str, changes: dict[str, Any], steps: int | None = None) -> dict[str, Any]:
    """Train at the quick preset with something changed; what is learned beside the target."""
    workload = dataclasses.replace(jobs.get(name).workload, **changes)
    kind = type(name, (jobs.DeclaredJob,), {"workload": workload, "name": name})
    less = {"lora": {"base_steps": 2}, "grpo": {"examples": 2}}
    own = workload.settings("quick") | less.get(name, {})
    repeat, number, size = (own.pop(key) for key in ("repeat", "number", "batch_size"))
    job = kind(JobConfig(batch_size=size, options=own, steps=repeat * number, data="synthetic"))
    job.setup()
    for _ in range(repeat * number if steps is None else steps):
        job.step()
    found = job.quality("quick", job.metrics())
    assert found is not None
    return found


def test_the_suite_has_these_jobs() -> None:
    assert set(SUITES["2026"]) == set(TINY)


@pytest.mark.parametrize("name", ["ppo", "rgat"])  # of the others a whole run takes longer than a test may
def test_a_sound_one_reaches_its_target(name: str) -> None:
    assert quick(name, {}, steps={"rgat": 150}.get(name))["reached"]


@pytest.mark.parametrize("name", TINY)
def test_without_an_update_and_with_the_wrong_sign_the_target_is_missed(name: str) -> None:
    loss = jobs.get(name).workload.loss
    assert not quick(name, {}, steps=0)["reached"]
    assert not quick(name, {"loss": lambda model, *batch: -loss(model, *batch)}, steps=8)["reached"]


def test_with_shuffled_labels_the_target_is_missed() -> None:
    loss = jobs.get("rgat").workload.loss

    def shuffled(model: Any, x: torch.Tensor, seeds: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        return loss(model, x, seeds, kind[torch.randperm(len(kind))])

    assert not quick("rgat", {"loss": shuffled}, steps=150)["reached"]


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_equal_to_models_alone(name: str) -> None:
    kind = jobs.get(name, swept=True)
    hyper = {key: [value / 2, value] for key, value in kind.workload.hyper.items()}
    options = TINY[name]
    config = JobConfig(
        B=2, batch_size=2, seed=1, options=options, hyper=hyper, precision="fp64", data="synthetic", threads=1
    )
    found = kind.check_equality(config, steps=4)
    assert found["passed"], found["message"]


# Those of the others are accuracies, as they are.
@pytest.mark.parametrize("name", ["gpt", "lora", "moe", "dpo", "dit", "dcnv2", "unet", "detector", "conformer"])
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


def test_answers_are_judged_and_a_wrong_one_is_not_rewarded() -> None:
    tokens = torch.tensor([[3, 1, 2, 10, 1, 2, 3], [3, 1, 2, 10, 1, 3, 2]])
    assert grpo.right(tokens).tolist() == [1.0, 0.0]


def test_wrong_symbols_of_answers_are_counted() -> None:
    said = torch.tensor([[1, 2, 3, 4]] * 4)
    answers = torch.tensor([[1, 0, 2, 3, 3, 4], [0, 2, 2, 3, 0, 4], [1, 2, 3, 0, 5, 0], [0, 0, 0, 0, 0, 0]])
    for answer, wrong in zip(answers, (0, 4, 1, 4), strict=True):
        logits = torch.nn.functional.one_hot(answer[None], 6).float()
        assert conformer.wrong(lambda x: x, logits, said[:1]) == wrong / 4


def test_the_label_of_a_graph_needs_its_bonds() -> None:
    options = {"atoms": 12}
    batch = molecules.graphs(JobConfig(batch_size=16), options).batch(0)
    _, marks, source, target, there, label = batch
    for i in range(16):
        near: dict[int, set[int]] = {}
        for a, b, real in zip(source[i].tolist(), target[i].tolist(), there[i].tolist(), strict=True):
            near.setdefault(a, set()).update({b} if real else ())
        (one,), (two,) = ((marks[i] == mark).nonzero().flatten().tolist() for mark in (1, 2))
        reached, steps = {one}, 0
        while two not in reached:
            reached |= {b for a in reached for b in near.get(a, ())}
            steps += 1
        assert label[i] == steps - 1


def test_boxes_that_are_found_count_once() -> None:
    box = torch.tensor([[[0.0, 0, 10, 10], [20, 20, 30, 30], [0, 0, 0, 0]]])
    there, kind = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[2, 1, 0]])
    score = torch.tensor([[3.0, 2.0, 1.0]])

    def judged(boxes: torch.Tensor, kinds: list[int]) -> float:
        logits = torch.nn.functional.one_hot(torch.tensor([kinds]), 3).float()
        return float(detector.precision(lambda x: (score, logits, boxes), box, there, kind, box))

    assert judged(box, [2, 1, 0]) == 1.0
    assert judged(box, [2, 0, 0]) == 0.5  # a wrong class is none
    assert judged(box[:, [0, 0, 1]], [2, 2, 1]) == 1.0  # the second box on the first thing is not counted
    assert judged(box + 8, [2, 1, 0]) == 0.0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt", {"heads": 3}, "heads 3 must divide width 16"),
        ("gpt", {"length": 400_000}, "the text has .* tokens to train on, too few"),
        ("mamba", {"chunk": 5}, "length 16 is not a multiple of the chunk 5"),
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
    with pytest.raises(InvalidArgument, match=r"part.bin is not a shard of tokens"):
        decoder.tokens_of(config, 300)
