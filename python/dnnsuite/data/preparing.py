# SPDX-License-Identifier: MIT
"""Preparation of data sets: unpacked from the user's archives, or written as fakes; whole or absent."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .._files import TEMPORARY, OutputError, write_text
from ..errors import BadData, InvalidArgument, Unavailable, reason
from ._fakes import fake
from ._origin import FAKE_FILE
from .catalogue import Archive, DataSet

Tell = Callable[[str], None]


def prepare(
    data: DataSet,
    dataroot: Path,
    source: Path | None = None,
    count: int | None = None,
    unchecked: bool = False,
    tell: Tell = lambda line: None,
) -> Path:
    """Prepare a data set below a dataroot unless it is there already; nothing is ever downloaded.

    Args:
        source: an archive, a folder with archives, or a folder in which the set lies.
        count: number of training samples of a fake to write instead.
        unchecked: take archives whose hash is not the known one.
        tell: called with a line for each step.

    Returns:
        The folder where it was found, or made.

    Raises:
        InvalidArgument: both or neither of `source` and `count` where the set is missing; or `source` is another set.
        BadData: an archive is damaged, or another one.
        Unavailable: the set is missing and nothing was given to make it of; the message says what to fetch.
        OutputError: it cannot be written.
    """
    if source is not None and count is not None:
        raise InvalidArgument("--from and --fake: give one of them")
    if (found := data.find(dataroot) if dataroot.is_dir() else None) is not None:
        if count is not None:
            raise InvalidArgument(f"--fake: {found} has {data.name} already; give another --dataroot")
        tell(f"{data.name} is complete in {found}")
        return found
    if source is None and count is None:
        raise Unavailable(f"{data.title}, was not found", f"{dataroot}/{data.folder}", what_to_fetch(data))
    with _whole(dataroot, data) as folder:
        if count is not None:
            tell(f"writing a fake {data.name} of {count} samples")
            fake(data.name, folder, count)
            made_of = f"{data.title}: noise in its files, made by `dnnsuite data prepare {data.name} --fake {count}`.\n"
            write_text(folder / FAKE_FILE, made_of)
        else:
            assert source is not None
            _from(data, source, folder, unchecked, tell)
        if data.find(folder.parent) is None:
            what = "; ".join(data.layout)
            raise InvalidArgument(f"{source}: no complete {data.title} in it; below {data.folder} there must be {what}")
    made = data.find(dataroot)
    assert made is not None
    tell(f"{data.name} is complete in {made}")
    return made


def what_to_fetch(data: DataSet) -> str:
    """Name the files that a user has to get by hand, and the command that takes them."""
    names = " and ".join(archive.name for archive in data.archives) or "its files"
    command = f"dnnsuite data prepare {data.name} --from FOLDER_WITH_THEM"
    return f"fetch {names} ({data.size}) from {data.page}, then: {command}; or try with --fake 100"


@contextmanager
def _whole(dataroot: Path, data: DataSet) -> Iterator[Path]:
    """A folder to fill. It takes its place below the dataroot when the body ends well, else it is removed."""
    target = dataroot / data.folder
    try:
        dataroot.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise InvalidArgument(f"{target} exists and is not a complete {data.name}: move or remove it")
        temporary = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{data.name}-", dir=dataroot))
    except OSError as error:
        raise OutputError(f"cannot write to {dataroot}: {error.strerror}") from error
    try:
        folder = temporary / data.folder
        folder.mkdir()
        yield folder
        for made in sorted(temporary.iterdir()):  # an archive may bring a folder of its own
            if any(made.iterdir()):
                made.rename(dataroot / made.name)
    except OSError as error:
        raise OutputError(f"cannot write to {dataroot}: {reason(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _from(data: DataSet, source: Path, folder: Path, unchecked: bool, tell: Tell) -> None:
    if source.is_file():
        archives = {source: _known(data, source)}
        missing = [each.name for each in data.archives if each.name != source.name and len(data.archives) > 1]
        if missing and source.name in {each.name for each in data.archives}:
            archives |= {source.parent / name: _known(data, source.parent / name) for name in missing
                         if (source.parent / name).is_file()}  # fmt: skip
    elif source.is_dir():
        there = [source / each.name for each in data.archives if (source / each.name).is_file()]
        archives = {path: _known(data, path) for path in there}
        if not archives:
            _copy(data, source, folder, tell)
            return
    else:
        raise InvalidArgument(f"--from {source}: no such file or folder")
    for path, archive in archives.items():
        _check(path, archive, unchecked, tell)
        tell(f"unpacking {path.name}")
        into = (folder / archive.into).resolve()
        into.mkdir(parents=True, exist_ok=True)
        _unpack(path, into)
        for inner in sorted(into.glob("*.tar")):  # of ImageNet, one for each class
            _unpack(inner, into / inner.stem)
            inner.unlink()


def _known(data: DataSet, path: Path) -> Archive:
    into = data.archives[0].into if data.archives else "."
    return next((each for each in data.archives if each.name == path.name), Archive(path.name, into=into))


def _copy(data: DataSet, source: Path, folder: Path, tell: Tell) -> None:
    """Take over a folder in which the set lies already, wherever in it."""
    found = data.find(source)
    if found is None:
        wanted = ", ".join(archive.name for archive in data.archives) or "its files"
        raise InvalidArgument(f"--from {source}: neither {wanted} nor {'; '.join(data.layout)} in it")
    tell(f"copying {source}")
    inside = source / data.folder
    shutil.copytree(inside if inside.is_dir() else source, folder, dirs_exist_ok=True)


def _check(path: Path, archive: Archive, unchecked: bool, tell: Tell) -> None:
    """Raise BadData for an archive that is not the one that is known by its name."""
    if not archive.md5:
        tell(f"{path.name}: unverified: nobody publishes a hash to check it by")
        return
    tell(f"checking {path.name}")
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != archive.md5:
        known = f"{archive.md5} that {archive.stated_by} states" if archive.stated_by else archive.md5
        said = f"{path}: its MD5 is {digest.hexdigest()}, not {known}: damaged, unfinished, or another file"
        if not unchecked:
            raise BadData(f"{said}; fetch it again, or give --unchecked")
        tell(said)


def _unpack(path: Path, into: Path) -> None:
    """Unpack a tar or zip archive, or take over a single file; nothing is written outside of `into`."""
    into.mkdir(parents=True, exist_ok=True)
    try:
        if path.suffix == ".gz" and not path.name.endswith(".tar.gz"):
            with gzip.open(path) as file:  # to the end: a download that did not end shows here
                while file.read(1 << 20):
                    pass
            shutil.copyfile(path, into / path.name)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(into)  # which leaves out absolute names and ..
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                _extract(tar, into, path)
        else:
            shutil.copyfile(path, into / path.name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise BadData(f"{path}: cannot be unpacked: {error}") from error


def _extract(tar: tarfile.TarFile, into: Path, path: Path) -> None:
    """The members of a tar archive that are files and folders below `into`."""
    root = into.resolve()
    for member in tar:
        if not (member.isfile() or member.isdir()):
            continue
        if not (root / member.name).resolve().is_relative_to(root):
            raise BadData(f"{path}: {member.name!r} would be written outside of the data set")
        member.mode = 0o755 if member.isdir() else 0o644
        tar.extract(member, root, set_attrs=False)
