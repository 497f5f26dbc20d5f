# SPDX-License-Identifier: MIT
"""A search of LoRA on a language model in a folder, with texts in a file, as what a sweep takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..adapters import Texts, import_peft
from ..errors import InvalidArgument, did_you_mean, reason
from .space import Config, Range, space_from_plain

#: Ranges where no file has others; names are those of PEFT's LoraConfig, of AdamW, of schedules, and of the data.
SPACE: Mapping[str, Any] = {
    "r": [4, 8, 16, 32],
    "alpha_over_r": [1, 2, 4],
    "lora_dropout": [0.0, 0.05],
    "target_modules": ["all-linear"],
    "lr": {"loguniform": [1e-5, 1e-2]},
    "batch_size": [2, 4, 8],
}
_HELD_OUT = 0.1  # of the texts, where no file has others


class LoraSearch:
    """Arguments of `dnnsuite.sweep` for adapters on the model in a folder.

    Args:
        base: folder of transformers', with a causal language model.
        data: file of JSON lines, as `adapters.Texts` reads it.
        held_out: another, to compare the trials by; None takes a tenth of `data`.
        tokenizer: folder of the tokenizer, or `bytes`; None is the base's folder.

    Raises:
        InvalidArgument: a folder or file is none of these; the message names it.
    """

    metric, goal = "loss", "min"

    def __init__(
        self, base: str | None, data: str, held_out: str | None, tokenizer: str | None, device: str,
        batch_size: int | None, micro_batch: int | None, keep: int, seed: int,
    ) -> None:  # fmt: skip
        if base is None or data == "auto":
            raise InvalidArgument("tune lora needs --base FOLDER, of transformers', and --data FILE.jsonl")
        if not (Path(base) / "config.json").is_file():
            raise InvalidArgument(f"--base {base} has no config.json: give a folder that save_pretrained wrote")
        kind = import_peft().LoraConfig
        import transformers

        self._make_config = functools.partial(peft_config, kind)
        spelled = _read(transformers.AutoTokenizer, tokenizer or base) if tokenizer != "bytes" else None
        texts = Texts(data, spelled)
        self._train, self._held_out = (
            (texts, Texts(held_out, spelled)) if held_out else texts.split(_HELD_OUT, seed)
        )  # fmt: skip
        self._base = _read(transformers.AutoModelForCausalLM, base).to(device)
        self._batch_size, self._micro_batch, self._keep = batch_size or 4, micro_batch, keep

    def space(self, *_: Any) -> dict[str, Range]:
        """The ranges that no file gives."""
        return space_from_plain(SPACE)

    def check_metric(self, name: str | None) -> None:
        """Refuse a metric that no trial will have."""
        if name is not None and name.removeprefix("val_") not in ("loss", "train_loss"):
            raise InvalidArgument(f"--metric {name}: lora has loss, train_loss{did_you_mean(name, ['loss'])}")

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Arguments of `dnnsuite.sweep`; a schedule follows the epochs by itself."""
        return {
            "make_model": self._make_config, "train": self._train, "evaluate": self._held_out, "base": self._base,
            "optimizer": "AdamW", "scheduler": "CosineAnnealingLR", "batch_size": self._batch_size,
            "micro_batch": self._micro_batch, "keep": self._keep,
        }  # fmt: skip


def peft_config(kind: Any, config: Config) -> Any:
    """Return the config of PEFT's of a trial. It knows no data: what a resumed search compares is named once."""
    own = {field.name: config[field.name] for field in dataclasses.fields(kind) if field.name in config}
    if "alpha_over_r" in config:
        own["lora_alpha"] = config["alpha_over_r"] * own.get("r", 8)
    return kind(task_type="CAUSAL_LM", **own)


def _read(kind: Any, folder: str) -> Any:
    try:
        return kind.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, ImportError) as error:
        what = "tokenizer" if "Tokenizer" in kind.__name__ else "causal language model"
        way = ": give its folder by --tokenizer, or --tokenizer bytes" if what == "tokenizer" else ""
        raise InvalidArgument(
            f"{folder} has no {what} that transformers reads ({reason(error).splitlines()[0]}){way}"
        ) from error
