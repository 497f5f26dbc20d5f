# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from PIL import Image

from dnnsuite.data import photographs
from dnnsuite.errors import InvalidArgument, Unavailable


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_only_pictures_are_listed_by_name(tmp_path):
    for name in ("b.JPG", "a.png", "c.jpeg", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in photographs.files(tmp_path)] == ["a.png", "b.JPG", "c.jpeg"]
    assert photographs.files(tmp_path / "nowhere") == []


@pytest.mark.parametrize("content", [b"", b"not a picture", None])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "broken.jpg"
    Image.fromarray(photographs.Noise().picture(60, 80)).save(path)
    path.write_bytes(path.read_bytes()[:400] if content is None else content)
    with pytest.raises(InvalidArgument, match=r"broken\.jpg cannot be decoded"):
        photographs.decode(path)


def test_decodes_to_the_mode_asked_for(tmp_path):
    Image.new("RGBA", (5, 4), (10, 20, 30, 40)).save(tmp_path / "a.png")
    assert photographs.decode(tmp_path / "a.png").getpixel((0, 0)) == (10, 20, 30)
    assert photographs.decode(tmp_path / "a.png", "L").mode == "L"


def test_the_amplitude_of_noise_falls_as_one_over_the_frequency():
    light = photographs.Noise(seed=3).picture(512, 512).mean(axis=2)
    spectrum = np.abs(np.fft.rfft2(light - light.mean()))
    frequency = np.hypot(np.fft.fftfreq(512)[:, None], np.fft.rfftfreq(512))
    band = (frequency > 0.01) & (frequency < 0.2)
    slope = np.polyfit(np.log(frequency[band]), np.log(spectrum[band]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.1)


def test_noise_is_a_row_of_pictures_from_the_seed():
    first, again, other = (photographs.Noise(seed) for seed in (1, 1, 2))
    row = [first.picture(30, 700) for _ in range(2)]
    assert np.array_equal(row[0], again.picture(30, 700))
    assert not np.array_equal(row[0], row[1])
    assert not np.array_equal(row[0], other.picture(30, 700))
    assert row[0].shape == (30, 700, 3)
    assert row[0].dtype == np.uint8


def test_jpeg_files_are_made_once(cache):
    folder, origin = photographs.jpeg_folder(16)
    paths = sorted(folder.glob("class-*/*.jpg"))
    assert origin.count == len(paths) == 16
    assert len({path.parent for path in paths}) == 8
    assert photographs.decode(paths[0]).size == (500, 375)
    mean_bytes = np.mean([path.stat().st_size for path in paths])
    assert 90_000 < mean_bytes < 130_000  # ImageNet's have 110 kB
    times = [path.stat().st_mtime_ns for path in paths]
    assert photographs.jpeg_folder(16)[0] == folder
    assert [path.stat().st_mtime_ns for path in paths] == times
    assert photographs.jpeg_folder(16, seed=1)[0] != folder


def test_a_folder_that_lost_a_file_is_made_again():
    folder, _ = photographs.jpeg_folder(8)
    lost = next(folder.glob("class-*/*.jpg"))
    lost.unlink()
    assert photographs.jpeg_folder(8)[0] == folder
    assert lost.exists()


def test_a_cache_that_cannot_be_written_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "file/below"))
    with pytest.raises(Unavailable, match="make DNNSUITE_CACHE a folder that can be written"):
        photographs.jpeg_folder(8)


def test_too_few_for_their_classes():
    with pytest.raises(InvalidArgument, match="3 images are not enough for 8 classes"):
        photographs.jpeg_folder(3)


def test_those_of_an_installed_package():
    pytest.importorskip("skimage", reason="pip install scikit-image")
    paths, origin = photographs.shipped()
    assert origin.count == len(paths) > 5
    assert all(min(photographs.decode(path).size) >= 256 for path in paths)


def test_without_such_a_package_there_are_none(monkeypatch):
    monkeypatch.setattr(photographs.importlib.util, "find_spec", lambda _: None)
    assert photographs.shipped() is None
