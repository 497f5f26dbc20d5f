# SPDX-License-Identifier: MIT
"""A search whose values are known, without any training."""

from dnnsuite.tuning import Decision, Setting, Uniform


def played(algorithm, epochs, value_of, space=None):
    """Epochs by trial of a search in which trial k's value is `value_of(k, epoch)`, and those that were given up."""
    algorithm.begin(Setting(space or {"x": Uniform(0, 1)}, (), epochs, 0))
    trained: dict[int, int] = {}
    given_up = []
    running = []
    while True:
        while (order := algorithm.next()) is not None:
            running.append(order.trial)
        given_up += algorithm.given_up()
        if not running:
            return trained, given_up
        trial = running.pop(0)
        trained[trial] = trained.get(trial, 0) + 1
        value = value_of(trial, trained[trial])
        if value is None:
            algorithm.ended(trial, None)
        elif algorithm.report(trial, trained[trial], value) is Decision.GO:
            running.insert(0, trial)
