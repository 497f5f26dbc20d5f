# SPDX-License-Identifier: MIT
from dnnsuite.training.history import Position

ROWS = [{"model": model, "epoch": epoch, "x": 10.0 * epoch + model} for epoch in (1, 2) for model in (0, 1)]


def test_a_model_of_an_array_has_the_place_of_a_run_of_its_own():
    at = Position(2, 0, 12, history=[dict(row) for row in ROWS])
    assert at.improved(1, 0.5)
    assert not at.improved(1, 0.25)
    own = at.of_model(1)
    assert own["history"] == [{"epoch": 1, "x": 11.0}, {"epoch": 2, "x": 21.0}]
    assert own["best"] == 0.5
    assert Position.from_state(own).best == {0: 0.5}
    assert Position.from_state(at.of_all()) == at
