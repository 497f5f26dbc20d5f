# SPDX-License-Identifier: MIT
"""`dnnsuite data`: put data sets into the form that training runs read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._options import Json, Text

if TYPE_CHECKING:
    from ..data.valprep import Moves

__all__ = ["commands"]


def commands(reporting: Callable[[Callable[..., int]], Callable[..., None]]) -> typer.Typer:
    """The group of commands; `reporting` turns what they return or raise into an exit status."""
    app = typer.Typer(help="Put data sets into the form that training runs read.", no_args_is_help=True)
    listed: tuple[tuple[str, Callable[..., int]], ...] = (("valprep", valprep), ("tfrecord", tfrecord))
    for name, function in listed:
        app.command(name)(reporting(function))
    return app


def valprep(
    folder: Annotated[
        Path, typer.Argument(help="Folder with ImageNet's validation images.", show_default=False)
    ],
    labels: Annotated[
        Text,
        typer.Option(
            help="List of the images' classes; docs/reproduce/tbd.md says which.  [looked for beside]"
        ),
    ] = None,
    synsets: Annotated[
        Text, typer.Option(help="Names of classes that the list numbers: meta.mat or map_clsloc.txt.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept that images of the list are missing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be moved; move nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Move ImageNet's 50,000 validation images into a folder per class, as valprep.sh does.

    Everything is checked first. Images are renamed, nothing is deleted or written over, and run again it goes on where
    it was ended.
    """
    from ..data.valprep import carry_out, find_labels, plan, read_labels

    list_ = Path(labels) if labels else find_labels(folder)
    moves = plan(folder, read_labels(list_, Path(synsets) if synsets else None), partial)
    if not dry_run:
        _with_progress(moves, carry_out)
    moved = 0 if dry_run else len(moves.todo)
    if as_json:
        found = {"folder": str(folder), "labels": str(list_), "to_move": len(moves.todo), "moved": moved}
        print(json.dumps({**found, "classes": moves.classes, "in_place": moves.done}))
        return 0
    for path, label in moves.todo if dry_run else ():
        print(f"{path} -> {folder / label / path.name}")
    verb = "would move" if dry_run else "moved"
    print(f"{verb} {len(moves.todo)} images into {moves.classes} class folders; {moves.done} were in place")
    return 0


def tfrecord(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder with train/ and val/, a folder per class in each.", show_default=False),
    ],
    out: Annotated[Text, typer.Option(help="Output directory.  [FOLDER/TFRecords]")] = None,
    shards: Annotated[int, typer.Option(help="Files of the training part.")] = 1024,
    validation_shards: Annotated[int, typer.Option(help="Files of the validation part.")] = 128,
    words: Annotated[
        Text, typer.Option(help="File of lines SYNSET<TAB>WORDS, for image/class/text.  [the synset]")
    ] = None,
    workers: Annotated[int, typer.Option(help="Threads.")] = 8,
    as_json: Json = False,
) -> int:
    """Write ImageNet's class folders as TFRecord shards, without TensorFlow, as TBD's convert_imagenet.sh does.

    Each shard is whole or absent; run again it writes those that are missing.
    """
    from .._runs.progress import Progress
    from ..data.imagenet_shards import convert, plan
    from ..errors import InvalidArgument

    if workers < 1:
        raise InvalidArgument(f"--workers {workers}: must be at least 1")
    conversion = plan(
        folder, Path(out) if out else None, shards, validation_shards, Path(words) if words else None
    )
    count = len(conversion.files)
    with Progress() as progress:
        progress.stage(f"writing {count} shards", count)
        written = convert(
            conversion, workers, lambda done, images: progress.at(done, conversion.out.name, None)
        )
    images = {part: len(listed) for part, listed in conversion.images.items()}
    if as_json:
        print(json.dumps({"out": str(conversion.out), "written": written, "shards": count, "images": images}))
        return 0
    told = ", ".join(f"{number:,} images for {part}" for part, number in images.items())
    print(
        f"{conversion.out}: {count} shards, {written} of them written now; {told}, {len(conversion.classes)} classes"
    )
    return 0


def _with_progress(moves: Moves, work: Callable[[Moves, Callable[[int], None]], None]) -> None:
    from .._runs.progress import Progress

    with Progress() as progress:
        progress.stage(f"moving {len(moves.todo)} images", len(moves.todo))
        work(moves, lambda done: progress.at(done, moves.folder.name, None))
