# SPDX-License-Identifier: MIT
"""`dnnsuite import`, and `coreutil` and `fp32util`, which print what TBD's scripts of these names did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

from .. import importers, profiler
from .._files import OutputError, write_json
from .._lazy import pandas as pd
from ..errors import InvalidArgument, reason
from ._late import counters, results
from ._options import File, Json
from ._status import print_json, records, say, script, tell

Source = Annotated[Path, "The file."]
Results = dict[str, "pd.DataFrame"]

_ROWS = 10
_WIDTH, _NAME = 100, 56  # characters of a line, and of a name in it


def import_file(
    files: Annotated[
        list[Path],
        "CSV of ncu, nvprof, nvvp or `nsys stats`, SQLite of nsys or nvvp, output of dcgmi dmon or "
        "dcgm-exporter, a trace of torch.profiler; or several traces, or a folder of them: the ranks of one run.",
    ],
    kind: Annotated[
        str, "ncu, nvprof, nvvp, nsys, nsys-stats, dcgm, kineto, or auto: recognised by the content."
    ] = "auto",
    out: Annotated[File, "Write each table as CSV into this folder."] = None,
    interval: Annotated[float, "Seconds between samples of dcgmi dmon (its -d), which writes no times."] = 1.0,
    against: Annotated[File, "Compare the time of each kernel with another file, the newer one."] = None,
    as_json: Json = False,
) -> int:
    """Import measurements of ncu, nvprof, nsys, dcgm, torch.

    Prints the contents of the files; --out writes them as CSV. Traces of several ranks are merged, and the rank that
    the others wait for is named. With --against, two files are compared by kernel. A torch.profiler trace of 100 MB or
    more is read in bounded memory.
    """
    paths, notes = _paths(files)
    if against is None and len(paths) == 1 and importers.large.is_large(paths[0], kind):
        _show_large(paths[0], out, as_json)
        return 0
    found = []
    for path in paths:
        try:
            found.append(importers.load(path, kind, interval))
        except importers.BadFile as error:
            if path in files or error.kind_is_known:  # named, or a trace that is damaged
                raise
            notes.append(f"{error}: left out")
    if not found:
        raise InvalidArgument("; ".join(notes))
    if against is not None:
        shown = _against(importers.load(against, kind, interval), found)
    else:
        shown = _of_one(found[0]) if len(found) == 1 else _of_ranks(found)
    shown.notes[:0] = notes
    written = _save(shown.tables | shown.results, out) if out is not None else []
    _show(shown, files, as_json, written)
    return 0


class _Shown(NamedTuple):
    """Output of a command: kind, tables as they were read, results, remarks; rows of tables that are not held."""

    kind: str
    tables: Results
    results: Results
    notes: list[str]
    unheld: dict[str, int] | None = None

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each table."""
        counted = {name: len(table) for name, table in self.tables.items()}
        return counted if self.unheld is None else self.unheld


def _paths(files: list[Path]) -> tuple[list[Path], list[str]]:
    """Return the files, and those of folders, with remarks on what is there twice."""
    paths = [path for given in files for path in _traces_in(given)]
    packed = [path for path in paths if path not in files and path.suffix == ".gz" and path.with_suffix("") in paths]
    notes = [f"{path}: skipped, because {path.with_suffix('').name} is there as well" for path in packed]
    return [path for path in paths if path not in packed], notes


def _traces_in(given: Path) -> list[Path]:
    if not given.is_dir():
        return [given]
    paths = sorted(path for path in given.iterdir() if path.name.endswith((".json", ".json.gz", ".sqlite", ".nvvp")))
    if not paths:
        raise InvalidArgument(f"{given} contains no trace (.json, .json.gz, .sqlite, .nvvp)")
    return paths


def _of_one(found: importers.Imported) -> _Shown:
    results, notes = _results(found)
    return _Shown(found.kind, found.tables, results, found.notes + notes)


def _show_large(path: Path, out: Path | None, as_json: bool) -> None:
    """Show a trace that is not held in memory."""
    if out is not None:
        _make(out)
    found = importers.large.summarise(path, out)
    shown = _Shown("kineto", {}, found.results, found.notes, found.rows)
    written = found.written + (_save(found.results, out, found.definitions) if out is not None else [])
    _show(shown, [path], as_json, written)


def _of_ranks(found: list[importers.Imported]) -> _Shown:
    ranks = importers.merge_ranks(found)
    notes = [f"{each.path}: {note}" for each in found for note in each.notes]
    return _Shown("ranks", ranks.tables, {"ranks": ranks.table}, [ranks.verdict, *notes])


def _against(before: importers.Imported, found: list[importers.Imported]) -> _Shown:
    if len(found) != 1:
        raise InvalidArgument(f"--against compares one file with another, not {len(found)}")
    table = importers.compare_traces(before, found[0])
    total = table["ms_a"].sum(), table["ms_b"].sum()
    note = f"all together {total[0]:.4g} ms in {before.path} (a), {total[1]:.4g} ms in {found[0].path} (b)"
    return _Shown("comparison", {}, {"kernels_compared": table}, [note])


def _show(shown: _Shown, files: list[Path], as_json: bool, written: list[Path]) -> None:
    names = ", ".join(map(str, files))
    if as_json:
        print_json(
            {
                "kind": shown.kind,
                "file": names,
                "rows": shown.rows,
                "results": {name: records(table) for name, table in shown.results.items()},
                "definitions": {name: profiler.definitions(table) for name, table in shown.results.items()},
                "notes": shown.notes,
                "written": [str(path) for path in written],
            }
        )
        return
    rows = ", ".join(f"{count} {name}" for name, count in shown.rows.items() if count)
    tell(f"{names}: {shown.kind}" + (f"; {rows or 'no rows'}" if shown.rows else ""))
    for name, table in shown.results.items():
        of = f" (of {table.attrs['of']})" if "of" in table.attrs else ""
        tell(f"\n{name}{of}:\n{_shown(table)}")
    for note in shown.notes:
        say(note)
    for path in written:
        say(f"wrote {path}")


def _results(found: importers.Imported) -> tuple[Results, list[str]]:
    """Compute the results that a file of this kind allows, with remarks on those that it does not."""
    if found.kind in importers.TRACES:
        return importers.analyse_trace(found), []
    if found.kind == "dcgm":
        return {"devices": _by_device(found.tables["samples"])}, []
    results = importers.by_name(found)
    notes: list[str] = []
    if found.kind == "nsys-stats":
        return results, notes
    for name, report in (("cores", _cores), ("fp32", _fp32)):
        try:
            said = report(found, results)
            notes += said
        except InvalidArgument as missing:
            notes.append(f"no {name}: {missing}")
    return results, notes


def _cores(found: importers.Imported, results: Results) -> list[str]:
    if found.kind != "ncu":
        return []
    results["cores"], notes = importers.core_report(found.tables["metrics"])
    return notes


def _fp32(found: importers.Imported, results: Results) -> list[str]:
    levels = (
        importers.fp32.of_ncu(found.tables["metrics"])
        if found.kind == "ncu"
        else importers.fp32.of_nvprof(found.tables)
    )
    made = importers.fp32_report(levels)
    results["fp32_high"], results["fp32_low"] = made.high, made.low
    return [f"FP32 utilisation, 0 to 10, mean over {made.total_ns:.0f} ns: {made.level:.5f}", *_left_out(made)]


def _by_device(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean, minimum and maximum of each quantity of each device."""
    grouped = samples.groupby(["device", "name", "unit"], observed=True, sort=False)["value"]
    table = grouped.agg(["count", "mean", "min", "max"]).reset_index()
    return profiler.define(
        table,
        {
            "device": "the GPU, or a part of it",
            "name": "the quantity",
            "unit": "of what follows",
            "count": "samples that have a value",
            "mean": "of these",
            "min": "least",
            "max": "most",
        },
    )


def _save(tables: Results, folder: Path, others: dict[str, dict[str, str]] | None = None) -> list[Path]:
    """Write a CSV file for each table, and the definitions of all columns beside them, also those of `others`."""
    _make(folder)
    written = []
    for name, table in tables.items():
        written.append(folder / f"{name}.csv")
        results.save_csv(table, written[-1])
    written.append(folder / "definitions.json")
    write_json(written[-1], (others or {}) | {name: profiler.definitions(table) for name, table in tables.items()})
    return written


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {folder}: {reason(error)}") from error


def _shown(table: pd.DataFrame) -> str:
    """Print a table's first rows in at most 100 columns: what does not fit follows, with the first column again."""
    names = table.head(_ROWS).iloc[:, 0].astype(str)
    cut = names.where(names.str.len() <= _NAME, names.str.slice(0, _NAME - 3) + "...")
    rows = table.head(_ROWS).iloc[:, 1:].set_axis(cut).rename_axis(index=None, columns=table.columns[0])
    text = rows.to_string(max_colwidth=_NAME, float_format="{:.4g}".format, line_width=_WIDTH)
    left = len(table) - _ROWS
    return text + (f"\n... and {left} more" if left > 0 else "")


def coreutil() -> None:
    """`coreutil FILE`: core utilisation of fma, fp16, tensor and sfu from a CSV file of ncu."""
    script("coreutil", _coreutil)


def _coreutil(file: Source, as_json: Json = False) -> None:
    """Core utilisation in a CSV file of ncu: the mean over all kernels, weighted by their cycles."""
    table, notes = importers.core_report(importers.ncu.read(file))
    if as_json:
        print_json({"file": str(file), "cores": records(table), "notes": notes})
    else:
        tell(counters.format_core_utilization(table))
        for note in notes:
            say(note, "coreutil")


def fp32util() -> None:
    """`fp32util FILE`: FP32 utilisation from a CSV file of nvprof, nvvp or ncu."""
    script("fp32util", _fp32util)


def _fp32util(file: Source, as_json: Json = False) -> None:
    """FP32 utilisation, 0 to 10, in a CSV file of nvprof, nvvp (GPU Details) or ncu: the mean over time."""
    made = importers.fp32_report(importers.fp32.read_levels(file))
    if as_json:
        print_json({"file": str(file), **made.to_dict()})
    else:
        tell(importers.fp32.render(made))
        for note in _left_out(made):
            say(note, "fp32util")


def _left_out(made: Any) -> list[str]:
    if not made.left_out:
        return []
    return [f"{made.left_out} launches ({made.left_out_ns:.0f} ns) have no level and are left out"]
