# SPDX-License-Identifier: MIT
"""Places that code changes, known from its instructions."""

import pytest

from dnnsuite._code import SELF, Change, changes_of, codes_of, looked_up

SEEN, TABLE = {"train": []}, {}
CONSTANT = MADE = FOUND = POPPED = NESTED = TABLE
TOTAL = 0


def outer():
    hits = 0

    class Holder:
        def appends(self, part, index):
            SEEN[part].append(index)

        def counts(self):
            self.calls += 1

        def closes(self):
            nonlocal hits
            hits += 1

        def caches(self, key):
            if key not in TABLE:
                TABLE[key] = key * 2
            return TABLE[key]

        def adds_to_an_item(self, key):
            self.counts_of[key] += 1

        def renames(self, key):
            rows, others = self.rows, self.others
            rows[key] = 1
            del others[key]

        def writes_a_slice(self, rows):
            self.rows[1:3] = rows

        def looks_into(self, key):
            for row in self.rows:
                row.append(key)

        def recovers(self, key):
            try:
                return self.given[key]
            except KeyError:
                self.failed.add(key)

        def goes_deep(self, key):
            self.cfg.state[key].flags.on = True

        def counts_all(self):
            global TOTAL
            TOTAL = TOTAL + 1

        def keeps_to_itself(self, rows):
            own, table = [], {}
            for row in rows:
                own.append(row + self.scale)
            table[len(own)] = self.given.get("a")
            return sorted(own), table, SEEN["train"]

    return Holder


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("appends", {("SEEN", "SEEN")}),
        ("counts", {(SELF, "calls")}),
        ("closes", {("hits", "hits")}),
        ("caches", {("TABLE", "TABLE")}),
        ("adds_to_an_item", {(SELF, "counts_of")}),
        ("renames", {(SELF, "rows"), (SELF, "others")}),
        ("writes_a_slice", {(SELF, "rows")}),
        ("looks_into", {(SELF, "rows")}),
        ("recovers", {(SELF, "failed")}),
        ("goes_deep", {(SELF, "on")}),
        ("counts_all", {("TOTAL", "TOTAL")}),
        ("keeps_to_itself", set()),
    ],
)
def test_what_code_changes(method, changes):
    code = vars(outer())[method].__code__
    assert changes_of(code) == {Change(*one) for one in changes}
    assert {change.name for change in changes_of(code)} == {name for _, name in changes}


def test_functions_inside_are_codes_of_their_own():
    def around(values):
        def inside():
            values.append(1)

        return inside

    first, second = codes_of(around.__code__)
    assert not changes_of(first)
    assert changes_of(second) == {Change("values", "values")}


def test_what_is_looked_up_by_a_key_that_is_no_constant():
    def code(self, key, number):
        constant = CONSTANT["a"], CONSTANT.get("b", key)
        made = MADE[key], self.table[f"a{number}"], FOUND.get("a" + str(number), constant), POPPED.pop(key, None)
        return made, NESTED["a"]["b"]

    assert looked_up(code.__code__) == {"MADE", "table", "FOUND", "POPPED"}
