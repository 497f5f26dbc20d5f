# SPDX-License-Identifier: MIT
"""`dnnsuite data`: list data sets, find them, and prepare them for runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from .._runs.progress import Progress
from .._shown import wrapped
from ..errors import Error, InvalidArgument
from ._late import catalogue
from ._options import Json, Number, Text
from ._status import say, tell

Dataroot = Annotated[
    Text, typer.Option(help="Folder with the data sets.  [$DATA_DIRECTORY, else data]", show_default=False)
]
Name = Annotated[str, "A data set; `dnnsuite data list` names them."]


def _root(dataroot: str | None) -> Path:
    return Path(dataroot or os.environ.get("DATA_DIRECTORY") or "data")


def list_sets(dataroot: Dataroot = None, as_json: Json = False) -> int:
    """List the data sets, and whether they are on this machine.

    For each it prints the size, how its archives are checked, and the jobs that read it.
    """
    root = _root(dataroot)
    if as_json:
        print(json.dumps({name: _as_dict(data, root) for name, data in catalogue.DATA_SETS.items()}))
        return 0
    there = "" if root.is_dir() else ", which does not exist yet"
    tell(f"below {root}{there}:\n  name, whether it is here, size, how its archives are checked")
    for name, data in catalogue.DATA_SETS.items():
        state = "here" if _found(data, root) else "-"
        checked = f"{data.checked:<11}"
        text = f"{data.title}; read by {', '.join(data.jobs)}"
        print("\n".join(wrapped(text, f"  {name:<11} {state:<5} {data.size:<7} {checked} ")))
    print("dnnsuite data where NAME shows where one is, or what to fetch")
    print("dnnsuite data prepare NAME prepares it")
    return 0


def where(name: Name, dataroot: Dataroot = None, as_json: Json = False) -> int:
    """Show where a data set is, or what to fetch.

    If it is missing, also shows what jobs read instead; the exit status is then 1.
    """
    from ..data.preparing import what_to_fetch

    data, root = catalogue.data_set(name), _root(dataroot)
    found = _found(data, root)
    if as_json:
        print(json.dumps(_as_dict(data, root)))
        return 0 if found else 1
    tell(f"{data.title}: {found or f'not below {root}'}")
    for title, value in (("licence", data.licence), ("size", data.size), ("read by", ", ".join(data.jobs))):
        print(f"  {title:<9} {value}")
    for i, line in enumerate(data.layout):
        print(f"  {'layout' if i == 0 else '':<9} {data.folder}/{line}")
    for i, archive in enumerate(data.archives):
        print(f"  {'archives' if i == 0 else '':<9} {archive.name}   {archive.hash_text}")
    if not found:
        print(f"  {'without':<9} jobs read {data.without}")
        print(f"  {'to do':<9} {what_to_fetch(data)}")
    return 0 if found else 1


def prepare_set(
    name: Name,
    dataroot: Dataroot = None,
    source: Annotated[
        Text, typer.Option("--from", help="An archive, a folder with the archives, or a folder with the data set.")
    ] = None,
    fake: Annotated[Number, "Write N random samples in the format of the data set instead."] = None,
    unchecked: Annotated[bool, "Accept archives with an unknown checksum."] = False,
    as_json: Json = False,
) -> int:
    """Unpack a data set's archives, or write a fake one.

    Nothing is downloaded. Checksums are verified. A data set appears only when it is complete.
    """
    from ..data.preparing import prepare

    where = prepare(catalogue.data_set(name), _root(dataroot), Path(source) if source else None, fake, unchecked, say)
    if as_json:
        print(json.dumps({"name": name, "path": str(where)}))
    else:
        tell(str(where))
    return 0


def _found(data: catalogue.DataSet, root: Path) -> Path | None:
    """Return the folder of a set; None for one that is not here or cannot be read."""
    try:
        return data.find(root) if root.is_dir() else None
    except (Error, OSError) as error:
        say(f"{data.name}: {error}")
        return None


def _as_dict(data: catalogue.DataSet, root: Path) -> dict[str, Any]:
    found = _found(data, root)
    return {
        "title": data.title,
        "found": str(found) if found else None,
        "folder": str(root / data.folder),
        "layout": list(data.layout),
        "size": data.size,
        "licence": data.licence,
        "page": data.page,
        "archives": {archive.name: archive.md5 for archive in data.archives},
        "checked": data.checked,
        "jobs": list(data.jobs),
        "without": data.without,
    }


def valprep(
    folder: Annotated[Path, "Folder with ImageNet's validation images."],
    labels: Annotated[
        Text, "List of the images' classes; docs/reproduce/tbd.md describes it.  [found beside FOLDER]"
    ] = None,
    synsets: Annotated[Text, "Names of numbered classes: meta.mat or map_clsloc.txt."] = None,
    partial: Annotated[bool, "Accept a list that names missing images."] = False,
    dry_run: Annotated[bool, "Print the moves; move nothing."] = False,
    as_json: Json = False,
) -> int:
    """Sort ImageNet's validation images into class folders.

    The folders are those of valprep.sh. Everything is checked first. Images are renamed; nothing is deleted or
    overwritten. If it is interrupted, repeat the command to continue.
    """
    from ..data.valprep import carry_out, find_labels, plan, read_labels

    list_ = Path(labels) if labels else find_labels(folder)
    moves = plan(folder, read_labels(list_, Path(synsets) if synsets else None), partial)
    if not dry_run:
        with Progress() as progress:
            progress.stage(f"moving {len(moves.todo)} images", len(moves.todo))
            carry_out(moves, lambda done: progress.at(done, folder.name, None))
    moved = 0 if dry_run else len(moves.todo)
    if as_json:
        found = {"folder": str(folder), "labels": str(list_), "to_move": len(moves.todo), "moved": moved}
        print(json.dumps({**found, "classes": moves.classes, "in_place": moves.done}))
        return 0
    for path, label in moves.todo if dry_run else ():
        tell(f"{path} -> {folder / label / path.name}")
    verb = "would move" if dry_run else "moved"
    print(f"{verb} {len(moves.todo)} images into {moves.classes} class folders; {moves.done} were in place")
    return 0


def tfrecord(
    folder: Annotated[Path, "Folder with train/ and val/, each with one folder per class."],
    out: Annotated[Text, "Output directory.  [FOLDER/TFRecords]"] = None,
    shards: Annotated[int, "Number of files for the training set."] = 1024,
    validation_shards: Annotated[int, "Number of files for the validation set."] = 128,
    words: Annotated[Text, "File of lines SYNSET<TAB>WORDS, for image/class/text.  [the synset]"] = None,
    workers: Annotated[int, "Threads."] = 8,
    as_json: Json = False,
) -> int:
    """Write ImageNet's class folders as TFRecord shards.

    The shards are those of TBD's convert_imagenet.sh; TensorFlow is not needed. A shard appears only when it is
    complete; repeat the command to write the missing ones.
    """
    from ..data.imagenet_shards import convert, plan

    if workers < 1:
        raise InvalidArgument(f"--workers {workers}: must be at least 1")
    conversion = plan(folder, Path(out) if out else None, shards, validation_shards, Path(words) if words else None)
    count = len(conversion.files)
    with Progress() as progress:
        progress.stage(f"writing {count} shards", count)
        written = convert(conversion, workers, lambda done, images: progress.at(done, conversion.out.name, None))
    images = {part: len(listed) for part, listed in conversion.images.items()}
    if as_json:
        print(json.dumps({"out": str(conversion.out), "written": written, "shards": count, "images": images}))
        return 0
    told = ", ".join(f"{number:,} images for {part}" for part, number in images.items())
    tell(f"{conversion.out}: {count} shards, {written} of them written now; {told}, {len(conversion.classes)} classes")
    return 0
