# SPDX-License-Identifier: MIT
"""The exceptions say what they know and survive a process boundary."""

import pickle

import pytest

from dnnsuite._files import read_json
from dnnsuite.errors import Error, InvalidArgument, Unavailable, did_you_mean, reason
from dnnsuite.suites.jobs_file import read_jobs_file
from dnnsuite.tuning.job import read_space


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unavailable("nvcc is missing"), "nvcc is missing"),
        (Unavailable("nvcc is missing", "PATH"), "nvcc is missing (looked in PATH)"),
        (Unavailable("nvcc is missing", "PATH", "install it"), "nvcc is missing (looked in PATH); install it"),
        (Unavailable("nvcc is missing", remedy="install it"), "nvcc is missing; install it"),
    ],
)
def test_unavailable_says_what_where_and_what_would_help(error, text):
    assert str(error) == text
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (Unavailable, text)


def test_an_invalid_argument_is_a_value_error_of_this_package():
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(InvalidArgument, Error)
    assert issubclass(Unavailable, Error)


@pytest.mark.parametrize(
    ("word", "hint"), [("brt", " (did you mean 'bert'?)"), ("BERT", " (did you mean 'bert'?)"), ("xyzzy", "")]
)
def test_the_nearest_word_is_a_question(word, hint):
    assert did_you_mean(word, ["bert", "dcgan"]) == hint


def test_the_last_part_of_a_name_is_nearer_than_one_that_looks_alike():
    assert did_you_mean("resnet50", ["resnet", "imagenet-resnet50"]) == " (did you mean 'imagenet-resnet50'?)"


@pytest.mark.parametrize("read", [read_json, read_jobs_file, read_space])
def test_a_missing_file_is_named_once_and_in_words(read, tmp_path):
    path = tmp_path / "space.yaml"
    with pytest.raises(Error) as error:
        read(path)
    assert str(error.value) == f"{path}: No such file or directory"


def test_the_reason_of_an_error_of_ours_is_its_text():
    assert reason(Error("too wide")) == "too wide"
    assert reason(OSError("a text alone")) == "a text alone"
