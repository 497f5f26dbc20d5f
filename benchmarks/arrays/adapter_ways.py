# SPDX-License-Identifier: MIT
"""Fine-tunings of one frozen base, and the ways to train B of them: workloads of `adapters.py`."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from ways import Way, concurrent, repeat, settle

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.adapters import import_peft
from dnnsuite.adapters.base import SharedBase
from dnnsuite.data import import_torchvision

RANK, VOCABULARY, CLASSES, LAYERS = 8, 1000, 10, 2
LR = 1e-3


@dataclass(frozen=True)
class Size:
    """Batch of one model: `sequences` of `length` tokens, or so many images."""

    sequences: int
    length: int

    def __str__(self) -> str:
        return f"{self.sequences} x {self.length}"


def gpt2(width: int) -> Any:
    import transformers

    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=LAYERS, n_embd=width, n_head=width // 64, vocab_size=VOCABULARY, n_positions=256,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def bert(width: int) -> Any:
    import transformers

    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            hidden_size=width, num_hidden_layers=LAYERS, num_attention_heads=width // 64, intermediate_size=4 * width,
            vocab_size=VOCABULARY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def llama(width: int) -> Any:
    import transformers

    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=width, intermediate_size=3 * width, num_hidden_layers=LAYERS, num_attention_heads=width // 64,
            vocab_size=VOCABULARY, max_position_embeddings=256,
        )
    )  # fmt: skip


def llama_gqa(width: int) -> Any:
    """Proportions of Llama 3: four queries to a key, SwiGLU of 3.5 widths, a head of its own."""
    import transformers

    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=width, intermediate_size=7 * width // 2, num_hidden_layers=LAYERS,
            num_attention_heads=width // 64 * 4, num_key_value_heads=width // 64, vocab_size=VOCABULARY,
            max_position_embeddings=256, tie_word_embeddings=False,
        )
    )  # fmt: skip


def qwen(width: int) -> Any:
    """Proportions of Qwen 3's small models: norms of queries and keys, a head tied to the embedding."""
    import transformers

    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            hidden_size=width, intermediate_size=3 * width, num_hidden_layers=LAYERS, num_attention_heads=width // 32,
            num_key_value_heads=width // 64, head_dim=64, vocab_size=VOCABULARY, max_position_embeddings=256,
            tie_word_embeddings=True,
        )
    )  # fmt: skip


def nf4(make: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same base with its linear layers but the head in 4 bits, by bitsandbytes."""

    def quantized(width: int) -> Any:
        from bitsandbytes.nn import Linear4bit

        model = make(width)
        for path, layer in list(model.named_modules()):
            if type(layer) is torch.nn.Linear and path != "lm_head":
                other = Linear4bit(layer.in_features, layer.out_features, layer.bias is not None, quant_type="nf4")
                other.load_state_dict(layer.state_dict())
                model.set_submodule(path, other.requires_grad_(False).to("cpu"))
        return model

    return quantized


class Lora:
    """LoRA on a language model; each model has its own sequences.

    Args:
        ranks: those of the models, in turn.
    """

    sizes = tuple(Size(sequences, length) for length in (32, 128) for sequences in (1, 4, 16))

    def __init__(
        self, make: Callable[[int], Any], width: int, targets: list[str] | str, ranks: tuple[int, ...] = (RANK,)
    ) -> None:
        self._make, self._width, self._targets, self._ranks = make, width, targets, ranks

    def small(self) -> Lora:
        """Return the same of a small model."""
        return type(self)(self._make, 64, self._targets, self._ranks)

    def base(self) -> torch.nn.Module:
        import_peft()  # which lets transformers be imported everywhere
        torch.manual_seed(0)
        made: torch.nn.Module = self._make(self._width)
        return made

    def config(self, index: int) -> Any:
        rank = self._ranks[index % len(self._ranks)]
        turned = "c_attn" in self._targets
        return import_peft().LoraConfig(
            task_type="CAUSAL_LM" if self._targets == "all-linear" else None,  # which leaves the head out
            r=rank, lora_alpha=2 * rank, target_modules=self._targets, fan_in_fan_out=turned,
        )  # fmt: skip

    def configs(self, B: int) -> list[Any]:
        return [self.config(index) for index in range(B)]

    def batch(self, B: int, size: Size) -> Any:
        """Tokens `[N, T]` of each model."""
        return torch.randint(VOCABULARY, (B, size.sequences, size.length))

    @staticmethod
    def losses(array: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        """Losses `[B]` of the next token."""
        logits = array(input_ids=ids).logits
        found: torch.Tensor = nn.functional.cross_entropy(logits[..., :-1, :].flatten(1, 2), ids[..., 1:].flatten(1))
        return found

    @staticmethod
    def loss(model: torch.nn.Module, ids: torch.Tensor, **options: Any) -> torch.Tensor:
        logits = model(input_ids=ids, **options).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    def ways(self, B: int, size: Size, threads: int) -> dict[str, Callable[[], Way]]:
        return {
            "loop": lambda: self.loop(B, size),
            "processes": lambda: concurrent(one_process, [(self, size)] * B, threads),
            "peft, mixed batch": lambda: self.mixed(B, size),
            "dnnsuite": lambda: self.array(B, size, threads),
        }

    def loop(self, B: int, size: Size) -> Way:
        """PEFT's models over one base, one after the other, with torch's fastest AdamW."""
        peft, shared, batch = import_peft(), SharedBase(self.base()), self.batch(B, size)
        models = [
            shared.model(lambda own, config=config: peft.get_peft_model(own, config)) for config in self.configs(B)
        ]
        optimizers = [torch.optim.AdamW(_trained(model), lr=LR, fused=True) for model in models]

        def step() -> None:
            for model, optimizer, ids in zip(models, optimizers, batch, strict=True):
                optimizer.zero_grad()
                self.loss(model, ids).backward()
                optimizer.step()

        return repeat(step)

    def mixed(self, B: int, size: Size) -> Way:
        """One model of PEFT's with B adapters, and each row's adapter by name: in eval mode, where PEFT allows it."""
        model = import_peft().get_peft_model(self.base(), self.config(0))
        names = ["default", *(f"adapter {index}" for index in range(1, B))]
        for index, name in enumerate(names[1:], 1):
            model.add_adapter(name, self.config(index))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("lora_" in name)
        model.eval()
        optimizer = torch.optim.AdamW(_trained(model), lr=LR, fused=True)
        ids, rows = self.batch(B, size).flatten(0, 1), [name for name in names for _ in range(size.sequences)]

        def step() -> None:
            optimizer.zero_grad()
            (B * self.loss(model, ids, adapter_names=rows)).backward()
            optimizer.step()

        return repeat(step)

    def array(self, B: int, size: Size, threads: int) -> Way:
        array = dnnsuite.adapt(self.base(), self.configs(B))
        return _runner(array, self.losses, self.batch(B, size), threads)


class Rows(Lora):
    """LoRA whose models have batches of their own sizes, up to `size`, by the losses that compute the tokens there are;
    `equal` gives each as many tokens as they have in the mean."""

    sizes = (Size(4, 32), Size(4, 128))
    equal = False

    def batch(self, B: int, size: Size) -> list[torch.Tensor]:
        each = [(1 + index % size.sequences, size.length // (1 + index % 2)) for index in range(B)]
        if self.equal:
            mean = sum(count * length for count, length in each) // B
            each = [(max(1, mean // size.length), min(mean, size.length))] * B
        return [torch.randint(VOCABULARY, shape) for shape in each]

    def ways(self, B: int, size: Size, threads: int) -> dict[str, Callable[[], Way]]:
        found = super().ways(B, size, threads)
        del found["peft, mixed batch"]  # which has one length
        return found

    def array(self, B: int, size: Size, threads: int) -> Way:
        array = dnnsuite.adapt(self.base(), self.configs(B))
        batch = dnnsuite.adapters.collate([[{"input_ids": ids} for ids in own] for own in self.batch(B, size)])
        return _runner(array, dnnsuite.adapters.losses.next_token, batch, threads, width=B, capture=False)


class EqualRows(Rows):
    """The same with equal batches, which tells what the difference in size costs."""

    equal = True


class Heads:
    """Heads of 10 classes on a frozen backbone of torchvision's; all models see the same images."""

    sizes = tuple(Size(images, 32) for images in (8, 32))

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def small(self) -> Heads:
        """Return itself: there is no smaller one."""
        return self

    def base(self) -> torch.nn.Module:
        torch.manual_seed(0)
        models = import_torchvision().models
        if self._kind == "resnet18":
            made = models.resnet18()
            made.fc = torch.nn.Identity()
        else:
            made = models.VisionTransformer(32, 4, 4, 4, 256, 512)
            made.heads = torch.nn.Identity()
        made.eval().requires_grad_(False)
        return made  # type: ignore[no-any-return]

    @property
    def features(self) -> int:
        return 512 if self._kind == "resnet18" else 256

    def batch(self, size: Size) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size.sequences, 3, size.length, size.length), torch.randint(CLASSES, (size.sequences,))

    @staticmethod
    def losses(array: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Losses `[B]`."""
        found: torch.Tensor = nn.functional.cross_entropy(array(batch[0]), batch[1])
        return found

    def ways(self, B: int, size: Size, threads: int) -> dict[str, Callable[[], Way]]:
        return {
            "loop": lambda: self.loop(B, size),
            "backbone once": lambda: self.once(B, size),
            "processes": lambda: concurrent(one_process, [(self, size)] * B, threads),
            "dnnsuite": lambda: self.array(B, size, threads),
        }

    def _heads(self, B: int) -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer]]:
        heads: list[torch.nn.Module] = [torch.nn.Linear(self.features, CLASSES) for _ in range(B)]
        return heads, [torch.optim.AdamW(head.parameters(), lr=LR, fused=True) for head in heads]

    def loop(self, B: int, size: Size) -> Way:
        """Each head runs the backbone."""
        backbone, (heads, optimizers), (x, y) = self.base(), self._heads(B), self.batch(size)

        def step() -> None:
            for head, optimizer in zip(heads, optimizers, strict=True):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(head(backbone(x)), y).backward()
                optimizer.step()

        return repeat(step)

    def once(self, B: int, size: Size) -> Way:
        """The backbone by hand once, then each head."""
        backbone, (heads, optimizers), (x, y) = self.base(), self._heads(B), self.batch(size)

        def step() -> None:
            features = backbone(x)
            for head, optimizer in zip(heads, optimizers, strict=True):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(head(features), y).backward()
                optimizer.step()

        return repeat(step)

    def array(self, B: int, size: Size, threads: int) -> Way:
        backbone = self.base()
        models = [torch.nn.Sequential(copy.deepcopy(backbone, _kept(backbone)), head) for head in self._heads(B)[0]]
        x, y = self.batch(size)
        batch = dnnsuite.stack(x, B=B), dnnsuite.stack(y, B=B)
        return _runner(dnnsuite.fuse(models), self.losses, batch, threads)


def _kept(module: torch.nn.Module) -> dict[int, Any]:
    """Memo for a copy of `module` that holds its tensors."""
    return {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}


def _trained(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _runner(array: Any, losses: Any, batch: Any, threads: int, **options: Any) -> Way:
    optimizer = optim.AdamW(_trained(array), lr=[LR] * len(array))
    runner = dnnsuite.StepRunner(array, optimizer, losses, threads=threads, **options)
    way = repeat(lambda: runner.step(batch), runner.synchronize)
    settle(runner, way)
    return way


def one_process(workload: Lora | Heads, size: Size) -> Way:
    """The way of one of B processes: a model with a base of its own."""
    warnings.simplefilter("ignore")
    return workload.loop(1, size)


WORKLOADS: dict[str, Lora | Heads] = {
    "resnet18": Heads("resnet18"),
    "vit": Heads("vit"),
    "gpt2-256": Lora(gpt2, 256, ["c_attn"]),
    "gpt2-768": Lora(gpt2, 768, ["c_attn"]),
    "bert-256": Lora(bert, 256, ["query", "value"]),
    "llama-256": Lora(llama, 256, ["q_proj", "v_proj"]),
    "llama-gqa-256, all linear": Lora(llama_gqa, 256, "all-linear"),
    "qwen-256, all linear": Lora(qwen, 256, "all-linear"),
    "llama-gqa-256, ranks 4 to 32": Lora(llama_gqa, 256, ["q_proj", "v_proj"], (4, 8, 16, 32)),
    "llama-gqa-256, NF4": Lora(nf4(llama_gqa), 256, "all-linear"),
    "llama-gqa-256, lengths": Rows(llama_gqa, 256, ["q_proj", "v_proj"], (4, 8, 16, 32)),
    "llama-gqa-256, as many tokens": EqualRows(llama_gqa, 256, ["q_proj", "v_proj"], (4, 8, 16, 32)),
}
