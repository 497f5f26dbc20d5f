# SPDX-License-Identifier: MIT
"""`dnnsuite workflow convergence`: does an array train as its models do alone?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._shown import settings_lines
from ..errors import InvalidArgument
from ._status import FAILED, keeping, say, tell

if TYPE_CHECKING:
    from ..workflow.convergence import ConvergenceReport

NAME = "convergence"


def compare(asked: dict[str, Any], out: str | None, resume: bool, dry_run: bool, as_json: bool, quiet: bool) -> int:
    """Run the comparison, or print its plan.

    Raises:
        InvalidArgument: an option has no meaning here, or a value is refused.
    """
    from .._runs.folder import WORKFLOW_FILE, default_out
    from ..workflow.common_settings import flag
    from ..workflow.convergence.plan import OPTIONS

    options = {name: value for name, value in asked.items() if value is not None}
    for name in options:
        if name not in OPTIONS and name != "precisions":
            raise InvalidArgument(
                f"{flag(name)} has no meaning for convergence; it has --job, --lrs, --models, --epochs"
            )
    precisions = [each for value in options.pop("precisions", []) for each in value.split(",")]
    if len(precisions) > 1:
        raise InvalidArgument(f"--precisions {','.join(precisions)}: convergence is compared in one precision")
    if precisions:
        options["precision"] = precisions[0]
    if dry_run:
        return _describe(options, as_json)
    where = Path(out) if out else default_out(NAME, WORKFLOW_FILE, resume)
    return _run(where, resume, options, as_json, quiet)


def _run(where: Path, resume: bool, options: dict[str, Any], as_json: bool, quiet: bool) -> int:
    from .._runs.folder import WORKFLOW_FILE
    from ..workflow import convergence

    with keeping(where, WORKFLOW_FILE, f"dnnsuite workflow {NAME}", "finished trainings"):
        report = convergence.run(where, resume, quiet=quiet, **options)
    if as_json:
        print(json.dumps(_as_dict(report)))
    else:
        if report.verdict is not None:
            print(report.verdict)
        for path in report.files:
            tell(str(path))
    for problem in report.problems:
        say(problem)
    return 0 if report.ok else FAILED


def _as_dict(report: ConvergenceReport) -> dict[str, Any]:
    return {
        "out": str(report.root),
        "ok": report.ok,
        "problems": report.problems,
        "verdict": None if report.verdict is None else report.verdict.to_dict(),
        "files": [str(path) for path in report.files],
        "settings": report.settings.to_dict(),
    }


def _describe(options: dict[str, Any], as_json: bool) -> int:
    from ..workflow.convergence.plan import WAYS, resolve
    from ..workflow.plan import weigh

    settings = resolve(options)
    weigh(settings)
    if as_json:
        print(json.dumps({"settings": settings.to_dict(), "trainings": list(WAYS)}))
        return 0
    print("\n".join(settings_lines(settings.to_dict())))
    print(f"\n{len(WAYS)} trainings of {settings.iterations} iterations of {len(settings.lrs)} models:")
    for way, what in WAYS.items():
        print(f"  {way:<8} {what}")
    return 0
