# SPDX-License-Identifier: MIT
"""Workloads of today: targets see what breaks them, arrays are equal, paper sizes are those of the sources."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dnnsuite import jobs, models
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig, detection, reinforcement
from dnnsuite.jobs.suite2026 import conformer, dino, graphs, preferences
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
    "dino": {"width": 16, "heads": 2, "hidden": 16, "bottleneck": 8, "prototypes": 8},
    "unet": {"width": 4, "pools": 1},
    "detector": {"width": 32, "size": 32},
    "conformer": {"layers": 1, "width": 16, "heads": 2, "mel": 20, "frames": 48},
    "molecules": {"steps": 1, "width": 16, "atoms": 8},
    "rgat": {"width": 8, "nodes": 300, "fan": "1 1"},
}
ARRAYS = [name for name in TINY if name not in ("ppo", "grpo")]


def set_up(name: str, kind: Any = None, **config: Any) -> Any:
    options = {**TINY[name], **config.pop("options", {})}
    given = {"batch_size": 8, "options": options, "data": "synthetic", **config}
    job = (kind or jobs.get(name))(JobConfig(**given))
    job.setup()
    return job


def trainer(name: str, changes: dict[str, Any]) -> Any:
    """A job of the quick preset with something changed, and the number of its steps."""
    workload = dataclasses.replace(jobs.get(name).workload, **changes)
    kind = type(name, (jobs.DeclaredJob,), {"workload": workload, "name": name})
    own = workload.settings("quick") | ({"base_steps": 2} if name == "lora" else {})  # its measure is against the base
    repeat, number, size = (own.pop(key) for key in ("repeat", "number", "batch_size"))
    job = kind(JobConfig(batch_size=size, options=own, steps=repeat * number, data="synthetic"))
    job.setup()
    return job


def reached(job: Any, steps: int = 0) -> bool:
    """True if a job is at its target after some more steps."""
    for _ in range(steps):
        job.step()
    return bool(job.quality("quick", job.metrics())["reached"])


def test_the_suite_has_these_jobs() -> None:
    assert set(SUITES["2026"]) == set(TINY)


def test_a_sound_one_reaches_its_target() -> None:
    assert reached(trainer("rgat", {}), 150)  # of the others a whole run takes longer than a test may


def test_an_agent_gets_better() -> None:
    job = trainer("ppo", {})
    (before,) = job.held_out_metric()
    for _ in range(20 * 16):
        job.step()
    assert job.held_out_metric()[0] > 2 * before


@pytest.mark.parametrize("name", TINY)
def test_without_an_update_and_with_the_wrong_sign_the_target_is_missed(name: str) -> None:
    """So do shuffled rewards of `grpo`, whose advantages have no mean: the answers stay what the examples taught."""
    loss = jobs.get(name).workload.loss
    job = trainer(name, {"loss": lambda model, *batch: -loss(model, *batch)})
    assert not reached(job)
    assert not reached(job, 4)


def most_frequent(labels: torch.Tensor, kinds: int) -> torch.Tensor:
    return labels.flatten().bincount(minlength=kinds).float()


def frequencies(batch: Any) -> torch.Tensor:
    """Logits of the tokens' own frequencies, at each place."""
    logits = (most_frequent(batch[-1], 256) + 1e-9).log()
    return logits.expand(*batch[-1].shape, -1)


def same_kind(batch: Any) -> torch.Tensor:
    return most_frequent(batch[-1], 10).expand(len(batch[-1]), -1)


def one_answer(batch: Any) -> torch.Tensor:
    """The same four symbols, whatever is heard."""
    x, said = batch
    symbols = torch.zeros(x.shape[1] // 4, dtype=torch.long)
    symbols[1::6][:4] = most_frequent(said, 11)[1:].topk(4).indices + 1
    return torch.nn.functional.one_hot(symbols, 11).float().expand(len(x), -1, -1)


def anywhere(batch: Any) -> tuple[torch.Tensor, ...]:
    """Boxes of the size of things, in each place of a grid alike."""
    _, there, kind, box = batch
    side = torch.tensor([-12.0, -12, 12, 12])
    steps = (torch.arange(12) + 0.5) * 8
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    boxes = torch.stack([x, y, x, y], -1).flatten(0, 1) + side
    kinds = most_frequent(kind[there > 0], 10).expand(*there.shape, -1)
    return torch.rand(there.shape), kinds, boxes.expand_as(box)


# Of jobs that are not trained with shuffled labels in tests/benchmarks/test_broken_jobs.py: the best that can be
# learned of them: their frequencies, means or any one of them. What a
# model says then depends on nothing that it sees, so that this is known without a training.
BLIND: dict[str, Callable[[Any], Any]] = {
    "gpt": frequencies,
    "mamba": frequencies,
    "moe": lambda batch: (frequencies(batch), torch.zeros(()), torch.ones(())),
    "vit": same_kind,
    "dino": lambda crops: (torch.randn(len(crops), 8), torch.rand(len(crops), 8)),
    "dit": lambda batch: batch[-1].mean(0, keepdim=True).expand_as(batch[-1]),
    "unet": lambda batch: batch[-1].mean(0, keepdim=True).expand_as(batch[-1]),
    "detector": anywhere,
    "conformer": one_answer,
    "molecules": lambda batch: most_frequent(batch[-1], 4).expand(len(batch[-1]), -1),
    "ppo": lambda batch: torch.tensor([[0.0, 1.0]]),
}


@torch.no_grad()
def judged(name: str, model: Callable[[Any], Callable[..., Any]]) -> bool:
    """True if what `model` makes of a held-out batch is at the target of the quick preset."""
    workload = jobs.get(name).workload
    own = workload.settings("quick")
    config = JobConfig(batch_size=own["batch_size"], options=own, data="synthetic")
    data, metric = workload.held_out(config, own), workload.metric
    count = min(4, metric.count(config.batch_size))
    values = [float(metric.of(model(batch), *batch)) for batch in (data.batch(i) for i in range(count))]
    return metric.reached(sum(values) / count, metric.target["quick"])


@pytest.mark.parametrize("name", BLIND)
def test_with_shuffled_labels_the_target_is_missed(name: str) -> None:
    def blind(batch: Any) -> Callable[..., Any]:
        if name == "dino":
            return BLIND[name]
        if name != "ppo":
            return lambda *inputs: BLIND[name](batch)
        return lambda states: (BLIND[name](batch).expand(len(states), -1), None)

    assert not judged(name, blind)


def test_adapters_of_shuffled_text_are_no_better_than_the_base() -> None:
    workload = jobs.get("lora").workload
    base = workload.model(workload.settings("quick") | {"layers": 1, "base_steps": 60}, workload.hyper)
    adapter = next(part for part in base.modules() if hasattr(part, "scale"))

    class Blind:
        """The frequencies of the bytes; the base where its adapters are off."""

        def modules(self) -> Any:
            return base.modules()

        def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.frequencies if adapter.scale else base(tokens)

    def blind(batch: Any) -> Any:
        made = Blind()
        made.frequencies = frequencies(batch)
        return made

    assert not judged("lora", blind)


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


class Paper(NamedTuple):
    """What the source of a paper size says.

    Attributes:
        parameters: in millions.
        gpus: of 80 GB, that hold a model in training with a batch of the preset.
        samples: of the batch that its step is tried on, on the meta device.
        data: options of the data that stand in for those that only take long to draw.
    """

    parameters: float
    samples: int = 1
    gpus: int = 1
    data: dict[str, Any] | None = None


# Parameters of modded-nanogpt, a Llama of 8 B with its adapters, Mamba-2, DiT-XL/2, ...
PAPER = {
    "gpt": Paper(124),
    "lora": Paper(7_547),
    "moe": Paper(402),
    "mamba": Paper(129),
    "dpo": Paper(1_750),
    "dit": Paper(2 * 675),
    "dcnv2": Paper(1_990, 64, data={"rows": 4000}),
    "ppo": Paper(0.135, 4),
    "grpo": Paper(1_750 / 2),  # the policy of dpo
    "vit": Paper(22.05),
    "convnext": Paper(2 * 28.59),  # with the average
    "dino": Paper(2 * (21.6 + 5.5 + 16.8), 2),  # twice backbone, head and prototypes
    "unet": Paper(7.756),  # fastMRI's own
    "detector": Paper(32.3),  # torchvision's FCOS
    "conformer": Paper(25.8, 2),  # of the blocks' formula; AlgoPerf's own also has the batch norms
    "molecules": Paper(2.44, 2),  # of the formula
    "rgat": Paper(5.76, 2, data={"nodes": 3000}),  # of the formula; MLPerf's 25 M are of more kinds of edges
}
_CAUSAL = {"gpt": 1, "lora": 1, "moe": 1, "dpo": 4 / 3, "grpo": 1}  # attention, of which the counter sees all
_STATE = {"AdamW": 2, "Adam": 2, "Adagrad": 1}  # values that an optimizer keeps of a parameter
_MEMORY, _RESERVE = 80e9, 0.1  # of a GPU, in bytes, and the share of it for what is neither weight nor activation


def shapes(name: str, options: dict[str, Any], count: int) -> list[torch.Tensor]:
    """A batch where the data of the paper size are made by the model, or take long to draw."""
    if name == "detector":
        places = sum(math.ceil(options["size"] / 8 / 2**level) ** 2 for level in range(options["levels"]))
        scene = torch.empty(count, options["channels"], options["size"], options["size"])
        there = torch.empty(count, places)
        return [scene, there, there.long(), torch.empty(count, places, 4)]
    if name == "grpo":
        tokens = torch.empty(4 * count, 2 * options["prompt"] + 1, dtype=torch.long)
        return [tokens, torch.empty(4 * count, options["prompt"]), torch.empty(4 * count)]
    states = options["moves"] * count // 4
    return [torch.empty(states, 4), torch.empty(states, dtype=torch.long), *torch.empty(4, states)]


def backward_of_groups(grad: Any, x: Any, weight: Any, *more: Any, **out: Any) -> int:
    """Operations of a convolution's two gradients; torch's own count takes no account of groups."""
    transposed, mask = more[4], more[7]
    places = math.prod(x[2:] if transposed else grad[2:])
    return 2 * x[0] * places * math.prod(weight) * sum(mask[:2])


def stepped(name: str, options: dict[str, Any], batch: list[torch.Tensor]) -> tuple[list[Any], int, int]:
    """Parameters after a step on the meta device, its operations, and the bytes that its backward pass needs."""
    workload, kept = jobs.get(name).workload, dict[int, int]()
    with torch.device("meta"):
        model = workload.model(options, workload.hyper)
    own = {p.untyped_storage()._cdata for p in model.parameters()}

    def keep(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        pairs = x.dim() > 2 and x.shape[-1] == x.shape[-2] and name != "mamba"
        if storage._cdata not in own and not pairs:  # fused attention keeps no weights of pairs
            kept[storage._cdata] = storage.nbytes()
        return x

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: backward_of_groups})
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        inputs = [x.to("meta") for x in batch]
        # The meta device has no CTC, in which there are no products.
        loss = model(inputs[0]).sum() if name == "conformer" else workload.loss(model, *inputs)
        loss.backward()
    return list(model.parameters()), counter.get_total_flops(), sum(kept.values())


@pytest.mark.parametrize("name", PAPER)
def test_a_paper_size_is_its_sources_and_fits_on_as_many_gpus_as_it_says(name: str) -> None:
    paper, workload = PAPER[name], jobs.get(name).workload
    preset, count = workload.presets["paper"], paper.samples
    options = {**workload.options, **preset.options}
    if name in ("detector", "grpo", "ppo"):
        batch = shapes(name, options, count)
    else:
        data = workload.data(JobConfig(batch_size=count, data="synthetic"), {**options, **(paper.data or {})})
        batch = list(data.batch(0))
    parameters, seen, kept = stepped(name, options, batch)
    size, trained = sum(p.numel() for p in parameters), [p for p in parameters if p.requires_grad]
    assert size / 1e6 == pytest.approx(paper.parameters, rel=0.05)
    assert all(p.grad is not None for p in trained)
    if options.get("again"):  # what is computed again is no work of the model
        options |= {"again": 0, "layers": 2}
        _, seen, _ = stepped(name, options, batch)
    length = 2 * options["prompt"] if "prompt" in options else options.get("length", 0)
    tokens = {"dpo": 2 * length, "grpo": length}.get(name, 1)  # of an item
    masked = _CAUSAL.get(name, 0) * tokens * 6 * options.get("layers", 0) * options.get("width", 0) * length
    items, declared = count * workload.items(options), workload.flops_per_item(options)
    assert seen / items == pytest.approx(declared + masked, rel=0.05)
    state = sum(p.numel() for p in trained) * (1 + _STATE[workload.groups()[0].optimizer.name])
    needed = 4 * (size + state) + kept * preset.batch_size / count
    assert math.ceil(needed / _MEMORY / (1 - _RESERVE)) == paper.gpus, f"{needed / 1e9:.0f} GB"


def test_a_pole_that_is_pushed_the_way_it_leans_stands_longer() -> None:
    class Leaning(torch.nn.Module):
        def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, None]:
            right = states[:, 2] + 0.5 * states[:, 3]
            return torch.stack([-right, right], -1), None

    class Always(torch.nn.Module):
        def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, None]:
            return torch.tensor([[0.0, 1.0]]).expand(len(states), 2), None

    (states,) = reinforcement.starts(JobConfig(), {}).batch(0)
    assert reinforcement.episode_length(Leaning(), states) > 150
    assert reinforcement.episode_length(Always(), states) < 20


def test_answers_are_judged_and_a_wrong_one_is_not_rewarded() -> None:
    tokens = torch.tensor([[3, 1, 2, 10, 1, 2, 3], [3, 1, 2, 10, 1, 3, 2]])
    assert preferences.right(tokens).tolist() == [1.0, 0.0]


def test_answers_of_a_teacher_are_spread_and_neighbours_vote() -> None:
    similar = torch.rand(64, 8, generator=torch.Generator().manual_seed(1))
    answers = models.spread(similar, 0.02)
    assert torch.allclose(answers.sum(1), torch.ones(64))
    assert answers.sum(0).min() > 4  # no prototype is left out, of which each has 8 answers in the end
    x = torch.eye(10).repeat(12, 1)
    kind = torch.arange(120) % 10
    assert dino.neighbours(lambda crops: (crops, crops), x, kind, x, kind) == 1.0
    assert dino.neighbours(lambda crops: (crops, crops), x, kind, x, (kind + 1) % 10) == 0.0


def test_wrong_symbols_of_answers_are_counted() -> None:
    said = torch.tensor([[1, 2, 3, 4]] * 4)
    answers = torch.tensor([[1, 0, 2, 3, 3, 4], [0, 2, 2, 3, 0, 4], [1, 2, 3, 0, 5, 0], [0, 0, 0, 0, 0, 0]])
    for answer, wrong in zip(answers, (0, 4, 1, 4), strict=True):
        logits = torch.nn.functional.one_hot(answer[None], 6).float()
        assert conformer.wrong(lambda x: x, logits, said[:1]) == wrong / 4


def test_the_label_of_a_graph_needs_its_bonds() -> None:
    options = {"atoms": 12}
    batch = graphs.graphs(JobConfig(batch_size=16), options).batch(0)
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
        return float(detection.precision(lambda x: (score, logits, boxes), box, there, kind, box))

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
