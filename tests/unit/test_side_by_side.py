"""Which tests `make test` keeps together, and which it begins with."""

from __future__ import annotations

from dataclasses import dataclass

from tests.side_by_side import longest_first, together


@dataclass
class Item:
    """As much of a test as is looked at."""

    nodeid: str
    slow: bool = False

    def get_closest_marker(self, name):
        return (self.slow and name == "slow") or None


def ordered(*items):
    some = list(items)
    longest_first(some)
    return [item.nodeid for item in some]


def test_a_module_and_all_of_spark_stay_together():
    assert together("tests/unit/test_a.py::test[x::y]") == together("tests/unit/test_a.py::test_other")
    assert together("tests/unit/test_a.py::test") != together("tests/unit/test_b.py::test")
    assert together("tests/spark/test_a.py::test") == together("tests/spark/test_b.py::test")


def test_spark_comes_first_and_then_the_modules_with_the_most_slow_tests():
    quick, slow, slower = "tests/a.py::one", "tests/b.py::one", "tests/c.py::one"
    spark, demo = "tests/spark/d.py::one", "tests/integration/testing/test_demo.py::one"
    some = [Item(quick), Item(slow, slow=True), Item(slower, slow=True), Item(f"{slower}more", slow=True)]
    assert ordered(*some, Item(demo), Item(spark)) == [spark, demo, slower, f"{slower}more", slow, quick]
