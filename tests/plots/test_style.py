# SPDX-License-Identifier: MIT
from pathlib import Path

import matplotlib.image
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dnnsuite import plots
from dnnsuite.errors import InvalidArgument


def test_png_is_whole(axes: Axes, tmp_path: Path) -> None:
    axes.plot([1, 2], [1, 2])
    plots.save(axes, tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
    height, width, channels = matplotlib.image.imread(tmp_path / "x.png").shape
    assert width > height > 500
    assert channels == 4


def test_an_svg_is_one_element() -> None:
    figure = Figure()
    figure.subplots()
    assert plots.svg(figure).startswith("<svg")


def test_every_figure_has_one_resolution(axes: Axes, tmp_path: Path) -> None:
    axes.figure.figure.set_size_inches(2, 2)
    plots.save(axes, tmp_path / "x.png")
    assert matplotlib.image.imread(tmp_path / "x.png").shape[1] == pytest.approx(2 * plots.DPI, rel=0.25)


def test_the_suffix_is_the_format(axes: Axes, tmp_path: Path) -> None:
    for name, first in (("x.pdf", b"%PDF"), ("x.svg", b"<?xml")):
        plots.save(axes, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(first)
    with pytest.raises(InvalidArgument, match=r"x\.jpg: a figure's name ends in one of \.png, \.pdf, \.svg"):
        plots.save(axes, tmp_path / "x.jpg")
    assert not (tmp_path / "x.jpg").exists()
