# SPDX-License-Identifier: MIT
"""`timing_parser` and `dcgm_parser`: HFTA's commands, with its flags and its files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .._runs.words import printable
from ..errors import Error, InvalidArgument
from ._status import tell

if TYPE_CHECKING:
    import pandas as pd

    from ..results.hfta_tables import HftaRuns
    from ..results.monitor import DcgmField

_MODES = ("serial", "concurrent", "mps", "mig", "hfta")
_PRECISIONS = ("fp32", "amp", "bf16")
_OUTDIRS = "directories of HFTA's runs, as bert/run0 bert/run1, or outputs of `dnnsuite workflow`"


def timing_parser() -> NoReturn:
    """`timing_parser --outdirs DIR ... --device D --device-model M --save PREFIX [--plot]`."""
    parser = _parser("timing_parser", "Throughput of finished runs by mode, precision and B: PREFIX.csv, PREFIX.png.")
    parser.add_argument("--device", required=True, choices=["cpu", "cuda", "xla"], help="cpu, cuda or xla")
    parser.add_argument("--filename", default="timing.csv", help="name of the timing files")
    parser.add_argument("--save", required=True, type=Path, help="PREFIX of the files to write")
    _run(parser, _timing)


def dcgm_parser() -> NoReturn:
    """`dcgm_parser --outdirs DIR ... --device-model M --savedir D [--plot]`."""
    parser = _parser("dcgm_parser", "Use of the GPU and the machine in finished runs: D/FIELD.csv, D/FIELD.png.")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cuda; cpu reads the host's only")
    parser.add_argument("--filename", default="dcgm_metrics.csv", help="name of the metrics' files")
    parser.add_argument("--savedir", required=True, type=Path, help="folder of the files to write")
    _run(parser, _dcgm)


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description=about)
    parser.add_argument("--outdirs", required=True, nargs="+", type=Path, help=_OUTDIRS)
    parser.add_argument(
        "--device-model", required=True, help="e.g. v100, a100 or rtx6000 (ignored for dnnsuite's own outputs)"
    )
    parser.add_argument("--precs", nargs="*", choices=_PRECISIONS, help="precisions; all there are by default")
    parser.add_argument("--modes", nargs="*", choices=_MODES, help="modes; all there are by default")
    parser.add_argument("--plot", action="store_true", help="draw figures, too")
    return parser


def _run(parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], list[Path]]) -> NoReturn:
    try:
        tell("\n".join(map(str, work(parser.parse_args()))))
    except (Error, OSError) as error:
        print(f"{parser.prog}: error: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


def _runs(arguments: argparse.Namespace) -> tuple[list[HftaRuns], list[str], list[str]]:
    """Return (runs, modes, precisions) to report: what was asked for, else what every run has."""
    from ..results.hfta_tables import runs_below

    model = arguments.device_model.lower()
    runs = [run for outdir in arguments.outdirs for run in runs_below(outdir.expanduser(), arguments.device, model)]
    points = [{(point.mode, point.precision) for point in run.places} for run in runs]
    everywhere = set.intersection(*points)
    precisions = arguments.precs or [p for p in _PRECISIONS if any(p == precision for _, precision in everywhere)]
    modes = arguments.modes or [m for m in _MODES if all((m, precision) in everywhere for precision in precisions)]
    if not modes or not precisions:
        raise InvalidArgument("the runs have no mode and precision in common; choose some by --modes, --precs")
    if arguments.plot and "serial" not in modes:
        raise InvalidArgument("--plot needs serial among the modes: the others are compared with it")
    return runs, modes, precisions


def _timing(arguments: argparse.Namespace) -> list[Path]:
    from ..results.hfta_tables import hfta_throughput

    def value(run: HftaRuns, point: Any) -> float:
        return hfta_throughput(run.timings(point, arguments.filename), arguments.device)

    return _written(arguments, arguments.save, value, "Normalized Throughput", lambda table: table / _baseline(table))


def _written(
    arguments: argparse.Namespace,
    prefix: Path,
    value: Callable[[HftaRuns, Any], float],
    label: str,
    scaled: Callable[[pd.DataFrame], pd.DataFrame],
) -> list[Path]:
    """Write the table of a value, and with --plot its figure; return the files."""
    from .. import plots, results
    from ..results.hfta_tables import hfta_table

    table = hfta_table(*_runs(arguments), value)
    files = [prefix.with_name(f"{prefix.name}{suffix}") for suffix in (".csv", ".png")[: 1 + arguments.plot]]
    results.save_csv(table, files[0], index=True)
    if arguments.plot:
        plots.save(plots.hfta(scaled(table), label), files[1])
    return files


def _baseline(table: pd.DataFrame) -> float:
    """Serial in fp32 (bf16 where there is none, as on a TPU) at B = 1."""
    for precision in ("fp32", "bf16"):
        if (name := f"serial:{precision}:avg") in table:
            return float(table[name].loc[1])
    raise InvalidArgument("--plot needs runs of serial in fp32: the others are divided by them")


def _dcgm(arguments: argparse.Namespace) -> list[Path]:
    from ..results.hfta_tables import dcgm_value

    arguments.savedir.mkdir(parents=True, exist_ok=True)

    def files(wanted: DcgmField) -> list[Path]:
        def value(run: HftaRuns, point: Any) -> float:
            return dcgm_value(run.places[point], wanted, arguments.filename)

        prefix = arguments.savedir / wanted.name
        return _written(arguments, prefix, value, wanted.label, lambda table: table * wanted.plot_scale)

    return [file for wanted in _fields(arguments) for file in files(wanted)]


def _fields(arguments: argparse.Namespace) -> Sequence[DcgmField]:
    """Return the fields that HFTA reads of such a GPU, with those of the host."""
    from ..results.monitor import DCGM_FIELDS, HOST_FIELDS, PIPE_MODELS

    if arguments.device == "cpu":
        return HOST_FIELDS
    if arguments.device_model.lower() in PIPE_MODELS:
        return (*DCGM_FIELDS, *HOST_FIELDS)
    everywhere = [each for each in DCGM_FIELDS if "_DEV_" in each.name]
    return (*everywhere, *HOST_FIELDS)
