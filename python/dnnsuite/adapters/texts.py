# SPDX-License-Identifier: MIT
"""Texts to fine-tune on: rows of JSON as tokens and labels, in one block of memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import InvalidArgument, reason
from .collating import IGNORED

_FORMS = '{"prompt": ..., "completion": ...}, {"text": ...}, {"messages": [...]}, or {"input_ids": [...]}'


class Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences of tokens with labels, for `adapters.collate`.

    Prompts and the turns of a user are not targets, and a completion ends with the tokenizer's end of sequence.

    Args:
        rows: a file with a row of JSON on each line, or mappings: prompt and completion (texts); `text`; `messages`,
            by the tokenizer's chat template, in which the turns of the assistant are targets; or `input_ids` and
            perhaps `labels`.
        tokenizer: a tokenizer of transformers; None takes the UTF-8 bytes of a text as tokens.

    Raises:
        InvalidArgument: a row has another form or no target; the message names it.

    >>> from dnnsuite.adapters import Texts
    >>> Texts([{"prompt": "a", "completion": "bc"}])[0]["labels"].tolist()
    [-100, 98, 99]
    """

    def __init__(self, rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]], tokenizer: Any = None) -> None:
        self._tokenizer = tokenizer
        source, given = _read(rows) if isinstance(rows, (str, os.PathLike)) else ("", enumerate(rows))
        found = [self._tokens(row, f"{source}row {number}") for number, row in given]
        if not found:
            raise InvalidArgument(f"{source or 'the data: '}there is no row: give {_FORMS}")
        self.ids = torch.tensor([token for ids, _ in found for token in ids], dtype=torch.int32)
        self.labels = torch.tensor([label for _, labels in found for label in labels], dtype=torch.int32)
        self._ends = torch.tensor([0, *(len(ids) for ids, _ in found)]).cumsum(0)
        self._first = torch.tensor([_first_target(labels) for _, labels in found])
        self.longest = max(len(ids) for ids, _ in found)
        del self._tokenizer

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.row(range(len(self))[index])

    def row(self, index: int, length: int | None = None) -> dict[str, torch.Tensor]:
        """Return the first `length` tokens of a sequence with their labels."""
        first, end = (int(place) for place in self._ends[index : index + 2])
        end = end if length is None else min(end, first + length)
        return {"input_ids": self.ids[first:end].long(), "labels": self.labels[first:end].long()}

    def usable(self, length: int | None = None) -> torch.Tensor:
        """Find the sequences that have a target among their first `length` tokens.

        Raises:
            InvalidArgument: none has.
        """
        found = torch.arange(len(self)) if length is None else (self._first < length).nonzero().squeeze(1)
        if not len(found):
            raise InvalidArgument(
                f"max_length={length} leaves no target in any sequence, whose prompts are longer: give "
                f"{int(self._first.min()) + 1} or more"
            )
        return found

    def split(self, part: float, seed: int = 0) -> tuple[Texts, Texts]:
        """Divide the sequences at random: (the rest, a part of them), each one or more."""
        if len(self) < 2 or not 0 < part < 1:
            raise InvalidArgument(f"a part of {part} of {len(self)} sequences cannot be held out")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        count = min(len(self) - 1, max(1, round(part * len(self))))
        return self._of(order[count:].sort().values), self._of(order[:count].sort().values)

    def _of(self, places: torch.Tensor) -> Texts:
        return Texts([self.row(place) for place in places.tolist()])

    def _tokens(self, row: Any, where: str) -> tuple[Sequence[int], Sequence[int]]:
        if not isinstance(row, Mapping):
            raise InvalidArgument(f"{where} is a {type(row).__name__}: give {_FORMS}")
        if "input_ids" in row:
            ids = [int(token) for token in row["input_ids"]]
            labels = [int(label) for label in row.get("labels", ids)]
        elif "messages" in row:
            ids, labels = self._conversation(row["messages"], where)
        elif isinstance(row.get("completion"), str) and isinstance(row.get("prompt"), str):
            prompt, completion = self._encoded(row["prompt"], True), self._encoded(row["completion"], False)
            ids, labels = prompt + completion, [IGNORED] * len(prompt) + completion
        elif isinstance(row.get("text"), str):
            ids = labels = self._encoded(row["text"], True) + self._encoded("", False)
        else:
            raise InvalidArgument(f"{where} has {sorted(row)}: give {_FORMS}, of texts")
        if len(ids) != len(labels) or _first_target(labels) >= len(ids):
            raise InvalidArgument(f"{where} has no target after its first token: give more text, or leave it out")
        return ids, labels

    def _encoded(self, text: str, begins: bool) -> list[int]:
        """Tokens of a text that begins a sequence, or ends one."""
        if self._tokenizer is None:
            return list(text.encode())
        ids = list(self._tokenizer(text, add_special_tokens=begins)["input_ids"])
        end = self._tokenizer.eos_token_id
        if begins:
            return ids[:-1] if ids and ids[-1] == end else ids
        return ids if end is None else [*ids, end]

    def _conversation(self, messages: Any, where: str) -> tuple[list[int], list[int]]:
        """Tokens of a chat; targets are what the template adds for a turn of the assistant to all before it."""
        if self._tokenizer is None or not getattr(self._tokenizer, "chat_template", None):
            raise InvalidArgument(f"{where} has messages, and the tokenizer has no chat template to write them by")
        try:
            roles = [message["role"] for message in messages]
        except (TypeError, KeyError) as error:
            raise InvalidArgument(f"{where}: messages is not a list of role and content ({reason(error)})") from error
        whole = self._chat(messages, False)
        labels = [IGNORED] * len(whole)
        for place, role in enumerate(roles):
            if role != "assistant":
                continue
            before, after = self._chat(messages[:place], True), self._chat(messages[: place + 1], False)
            if whole[: len(after)] != after or after[: len(before)] != before:
                raise InvalidArgument(
                    f"{where}: the chat template writes message {place} in another way when others follow it, so its "
                    "tokens cannot be told from the rest: give one turn of the assistant, the last, or input_ids and "
                    "labels of your own"
                )
            labels[len(before) : len(after)] = after[len(before) :]
        return whole, labels

    def _chat(self, messages: Sequence[Any], asks: bool) -> list[int]:
        found = self._tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=asks, return_dict=False
        )
        return list(found)


def _first_target(labels: Sequence[int]) -> int:
    """Place of the first label after another token; their number without one."""
    return next((place for place, label in enumerate(labels) if place and label != IGNORED), len(labels))


def _read(path: str | os.PathLike[str]) -> tuple[str, Iterator[tuple[int, Any]]]:
    """Return (name for messages, rows with the numbers of their lines)."""
    name = os.fspath(path)
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # a text may hold other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{name} cannot be read as a file of JSON lines: {reason(error)}") from error
    return f"{name}: ", ((n, _parsed(name, n, line)) for n, line in enumerate(lines, 1) if line.strip())


def _parsed(path: str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"{path}: row {number} is no JSON: {reason(error)}") from error
