# SPDX-License-Identifier: MIT
"""Results of mila-iqia/training, of either age, and of its successor milabench: a file of events per process."""

from __future__ import annotations

import codecs
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .._files import regular
from .._runs.failures import CLASSES, classify_exit
from .._runs.record import FASTEST
from ..errors import Error, reason
from .intervals import mean
from .table import SEPARATOR, Row, values_of


def rows_of_mila(directory: Path, name: str | None = None) -> tuple[list[Row], list[str]]:
    """Return (rows, a sentence for each damaged file or result) of the suite `name`, or of any.

    A folder holds one folder per run with one file per device (`<name>_<device>.json`), or one file per result
    (`<name>.<job>.R<run>.D<device>...`).
    """
    wanted = name or "*"
    patterns = (f"{wanted}[_.]*.json", f"{wanted}.json")
    rows: list[Row] = []
    arguments: list[dict[str, Any]] = []
    problems: list[str] = []
    for path in sorted({path for pattern in patterns for path in directory.rglob(pattern)}):
        try:
            results = _results(path)
        except Error as error:
            problems.append(f"skipped: {error}")
            continue
        for index, result in enumerate(results):
            try:
                with values_of(f"{path}: not a result of the suite"):
                    rows.append(_row(path, index, result, directory, name))
                    arguments.append(
                        {
                            name: value
                            for name, value in result.items()
                            if name not in _NO_ARGUMENTS and isinstance(value, (str, int, float, bool))
                        }
                    )
            except Error as error:
                problems.append(f"skipped: {error}")
    return numbered(_with_variants(with_copies(rows, lambda row: row.job), arguments)), problems


def _results(path: Path) -> list[Any]:
    """Return the results in a file: one, a list, or a list that was never closed, as the original suite leaves it."""
    try:
        text = regular(path).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: {reason(error)}") from error
    if text.startswith("[") and not text.endswith("]"):
        text = re.sub(r",$", "", text) + "]"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Error(f"{path}: not a result of the suite: {error}") from error
    return found if isinstance(found, list) else [found]


def _row(path: Path, index: int, result: Mapping[str, Any], directory: Path, name: str | None) -> Row:
    about = result.get("dnnsuite") or {}
    failure = _failure(result, about)
    average = math.nan if failure else float(result["train_item"]["avg"])
    rate = average if math.isnan(average) else rate_of(average)
    settings = about.get("changed") or {}
    devices = str(result.get("vcd", ""))
    number = re.search(r"\.R(\w+)\.", path.name)
    plan = hashlib.sha256(f"mila:{directory.resolve()}".encode()).hexdigest()[:32]
    versions = [str(result[key])[:12] for key in ("unique_id", "version") if result.get(key)]
    return Row(
        job=str(result["name"]),
        precision="unknown",
        mode="shares",
        value=rate,
        seed_rate=rate,
        unit="items/s",
        item="items",
        seed_unit="items",
        status="failed" if failure else "ok",
        failure=failure,
        message=str(about.get("message") or _MESSAGES.get(failure or "", "")),
        run=number[1] if number else path.parent.relative_to(directory).as_posix(),
        kind="mila",
        plan=name or re.sub(r"(_\d+(,\d+)*|\..*)?\.json$", "", path.name),  # the suite's name begins the file's
        plan_id=plan,
        plan_path=str(directory),
        run_id=f"{plan}/{path.relative_to(directory).as_posix()}#{index}",
        share="all" if "," in devices else devices,
        job_version=" ".join(versions),
        batch_size=count_of(result.get("batch_size")),
        preset=str(about.get("preset") or ""),
        changed=SEPARATOR.join(f"{name}={value}" for name, value in settings.items()),
        feed=str(about.get("feed") or ""),
        seed_feed=str(about.get("feed") or ""),
        gpus=str(result.get("gpu") or ""),
        hostname=str(result.get("hostname") or ""),
        path=str(path),
    )


def rate_of(value: Any) -> float:
    """Read items per second.

    Raises:
        ValueError: no run can have it.
    """
    rate = float(value)
    if not 0 <= rate < FASTEST:
        raise ValueError(f"{rate} items per second: no rate is negative, or {FASTEST:g} and more")
    return rate


def count_of(value: Any) -> int:
    """Read a count; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else 0


# Of a result, what is no argument of its job, or tells devices and runs apart and not what was run.
_NO_ARGUMENTS = {
    "batch_loss", "epoch_loss", "metrics", "train", "train_item", "completed", "dnnsuite", "name", "unique_id",
    "version", "hostname", "run_id", "gpu", "jr_id", "vcd", "cpu_cores", "seed", "devices", "data", "cuda", "report",
}  # fmt: skip


def _with_variants(rows: Sequence[Row], arguments: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows, of jobs that one device ran with several arguments in one run named by those that differ."""
    executions = Counter((row.run, row.share, row.job) for row in rows)
    several = {job for (_, _, job), count in executions.items() if count > 1}
    found = []
    of_job = {job: [arguments[i] for i, row in enumerate(rows) if row.job == job] for job in several}
    differing = {
        job: [name for name in sorted(set().union(*all_)) if len({str(each.get(name)) for each in all_}) > 1]
        for job, all_ in of_job.items()
    }
    for row, own in zip(rows, arguments, strict=True):
        said = ", ".join(f"{name}={own.get(name)}" for name in differing.get(row.job, ()))
        found.append(replace(row, variant=said) if said else row)
    return found


_MESSAGES = {"nan": "a loss is not finite", "crash": "did not complete"}


def _failure(result: Mapping[str, Any], about: Mapping[str, Any]) -> str | None:
    """Return the class of a failure: the one that our own files name, else a crash; None for what ended well."""
    if any(loss is None or math.isnan(loss) for loss in result.get("batch_loss") or ()):
        return "nan"
    named = about.get("failure")
    return None if result.get("completed", True) else named if named in CLASSES else "crash"


def numbered(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with `repeat` counting the runs, in the order of their names."""
    runs = sorted({row.run for row in rows}, key=lambda run: (len(run), run))
    return [replace(row, repeat=runs.index(row.run)) for row in rows]


def with_copies(rows: Sequence[Row], together: Callable[[Row], object]) -> list[Row]:
    """Return the rows, with the number of copies that ran at once: one on each share of which there are results.

    Args:
        together: function that returns the same for rows of copies.
    """
    shares: dict[object, set[str]] = {}
    for row in rows:
        shares.setdefault(together(row), set()).add(row.share)
    return [row if row.share == "all" else replace(row, copies=len(shares[together(row)] - {"all"})) for row in rows]


_REPEAT = re.compile(r"R\d+$")
_BATCH_SIZE = re.compile(r"--batch[-_]size$")
_BEGIN = b'{"event"'
_FEWEST_TRIMMED = 5  # rates, from which on the least and the greatest are left out


def rows_of_milabench(directory: Path, name: str | None = None) -> tuple[list[Row], list[str]]:
    """Return (rows, a sentence for each damaged file) of the `*.data` files below a directory, of the run `name` or
    of any.

    The rate of a process is the one that `milabench report` prints: the mean of the rates it recorded, without the
    least and the greatest. A run counts as failed by milabench's rule.
    """
    rows: list[Row] = []
    problems: list[str] = []
    for path in sorted(directory.rglob("*.data")):
        if not _is_stream(path):
            continue
        try:
            found = _events_in(path)
            if found.config and name in (None, _run_name(path, found)):
                with values_of(f"{path}: not a run of milabench"):
                    rows.append(_row_of_process(path, directory, found))
        except Error as error:
            problems.append(f"skipped: {error}")
    return numbered(with_copies(rows, lambda row: (row.run, row.job))), problems


@dataclass
class _Process:
    """Events of one process."""

    config: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    unit: str = "items/s"
    nan: bool = False
    stopped: bool = False
    errors: list[str] = field(default_factory=list)


def _is_stream(path: Path) -> bool:
    """True if a file begins as milabench's do; others call their files `.data`, too."""
    try:
        with open(regular(path), "rb") as file:
            return file.read(len(_BEGIN) + 3).removeprefix(codecs.BOM_UTF8).startswith(_BEGIN)
    except OSError:
        return False


def _events_in(path: Path) -> _Process:
    found = _Process()
    try:
        for number, event in enumerate(_events(path), 1):
            with values_of(f"{path}:{number}: not an event of milabench"):
                _take(found, event)
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: {reason(error)}") from error
    return found


def _events(path: Path) -> Iterator[Any]:
    """Yield the events of a file, a line each. A last line that was cut, as a kill leaves it, is left out."""
    with open(regular(path), encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith("\n") and number > 1:
                    return
                raise Error(f"{path}:{number}: not an event of milabench: {error}") from error


def _take(found: _Process, event: Mapping[str, Any]) -> None:
    kind, data = event["event"], event.get("data")
    if kind in ("config", "meta", "start", "end"):
        setattr(found, kind, dict(data or {}))
    elif kind == "stop":
        found.stopped = True
    elif kind == "error" and isinstance(data, Mapping):
        found.errors.append(f"{data.get('type') or 'error'}: {data.get('message') or ''}".rstrip(": "))
    elif kind == "data" and isinstance(data, Mapping):
        if (loss := data.get("loss")) is not None:
            found.nan = found.nan or math.isnan(float(loss))
        if data.get("task") == "train" and data.get("rate") is not None:
            found.rates.append(rate_of(data["rate"]))
            found.unit = str(data.get("units") or found.unit)


def _failure_of(found: _Process) -> tuple[str | None, str]:
    """Return (class, message) of what went wrong; (None, "") for a process that milabench counts as a success."""
    if found.rates and (found.stopped or (found.end.get("return_code") == 0 and not found.nan)):
        return None, ""
    if found.errors:
        is_import = found.errors[-1].startswith("ModuleNotFoundError")
        return "unavailable" if is_import else classify_exit(1, found.errors[-1])[0], found.errors[-1]
    if found.nan:
        return "nan", "a loss is not a number"
    if not found.end:
        return "crash", "it did not end"
    if (status := found.end.get("return_code")) != 0:
        return "crash", f"it ended with status {status}"
    return "crash", "it recorded no rate of training"


def _run_name(path: Path, found: _Process) -> str:
    return str(found.config.get("run_name") or path.parent.name)


def _row_of_process(path: Path, directory: Path, found: _Process) -> Row:
    config, meta = found.config, found.meta
    failure, message = _failure_of(found)
    kept = sorted(found.rates)[1:-1] if len(found.rates) >= _FEWEST_TRIMMED else found.rates
    rate = math.nan if failure else mean(kept)
    unit = found.unit
    run = _run_name(path, found)
    tags = [str(tag) for tag in config.get("tag") or ()]
    repeats = [tag for tag in tags if _REPEAT.match(tag)]
    plan = hashlib.sha256(f"milabench:{directory.resolve()}".encode()).hexdigest()[:32]
    seconds = float(found.end.get("time", math.nan)) - float(found.start.get("time", math.nan))
    began_s, cpu, own = found.start.get("time"), meta.get("cpu") or {}, (config.get("system") or {}).get("self") or {}
    started = "" if began_s is None else datetime.fromtimestamp(float(began_s), timezone.utc).isoformat("T", "seconds")
    versions = meta.get("milabench") or {}
    return Row(
        job=str(config["name"]),
        device=str(config.get("arch") or (config.get("system") or {}).get("arch") or ""), precision="unknown",
        mode="shares", value=rate, seed_rate=rate, unit=unit, item=unit.removesuffix("/s"),
        seed_unit=unit.removesuffix("/s"), status="failed" if failure else "ok", failure=failure,
        message=message, run="/".join([run, *repeats]), kind="milabench", plan=run, plan_id=plan,
        plan_path=str(directory), run_id=f"{plan}/{path.relative_to(directory).as_posix()}",
        share=_share(config, tags), job_version=str(versions.get("commit") or "")[:12],
        batch_size=_batch_size(found.start.get("command") or ()), started=started,
        seconds=seconds, path=str(path), gpus=_gpu(config, meta),
        hostname=str((meta.get("os") or {}).get("nodename") or own.get("hostname") or ""),
        cpu_model=str(cpu.get("brand") or ""), cpus=count_of(cpu.get("count")),
        driver=str(((meta.get("accelerators") or {}).get("system") or {}).get("DRIVER_VERSION") or ""),
        torch=str((meta.get("pytorch") or {}).get("torch") or ""),
    )  # fmt: skip


def _share(config: Mapping[str, Any], tags: Sequence[str]) -> str:
    """Return the device that a process had to itself, the number of a job, or `all` for the machine."""
    if config.get("device") is not None:
        return str(config["device"])
    plan = config.get("plan") or {}
    number = config.get("job-number")
    if number is None:
        number = next((tag for tag in tags if tag.isdigit()), None)
    return "all" if number is None or count_of(plan.get("n")) <= 1 else str(number)


def _batch_size(command: Sequence[Any]) -> int:
    words = [str(word) for word in command]
    for word, value in itertools.pairwise(words):
        if _BATCH_SIZE.match(word) and value.isdigit():
            return count_of(int(value))
    return 0


def _gpu(config: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    devices = (meta.get("accelerators") or {}).get("gpus") or {}
    own = devices.get(str(config.get("device")))
    chosen = [own] if own else [*devices.values()]
    return ", ".join(dict.fromkeys(str(each.get("product") or "") for each in chosen))
