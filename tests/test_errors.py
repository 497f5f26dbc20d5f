# SPDX-License-Identifier: MIT
"""The exceptions say what they know and survive a process boundary."""

import pickle

import pytest

from dnnsuite.errors import Error, InvalidArgument, Unavailable, did_you_mean


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unavailable("nvcc is missing"), "nvcc is missing"),
        (Unavailable("nvcc is missing", "PATH"), "nvcc is missing (looked in PATH)"),
        (
            Unavailable("nvcc is missing", "PATH", "install it"),
            "nvcc is missing (looked in PATH); install it",
        ),
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
