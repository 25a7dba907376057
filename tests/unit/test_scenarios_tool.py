"""`make scenarios`: it reads every form the documents and the tests use, and notices a name that stands for nothing."""

from __future__ import annotations

import json

import pytest
from scripts.scenarios import ROOT, collect, main, marks_of, ranges, scenarios_of

SPEC = """\
## 1 Checks
| # | check |
|---|---|
| 1 | not a scenario: another section |

## 2 Test vectors
| # | bytes |
|---|---|
| V1 | `00` |

**T1 = R1** offset 0, and the text goes on about **T9**

## 3. Acceptance scenarios (given / when / then)
Setup unless stated: 2. is not at the start of this line.

| # | Given | Then |
|---|---|---|
| 1 | a | b |
| 6.10 | see | 7 |

## 4 Notes
1. not a scenario either
"""

TESTS = """\
import pytest

@pytest.mark.slow
@pytest.mark.scenario("store 1", "store 6.10")
def test_two_at_once(): ...

@pytest.mark.parametrize("vector", [pytest.param(1, marks=pytest.mark.scenario("store V1"))])
def test_a_vector(vector): ...

pytestmark = [pytest.mark.scenario("store T1")]
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "docs" / "spec").mkdir(parents=True)
    (tmp_path / "docs" / "spec" / "store.md").write_text(SPEC)
    (tmp_path / "docs" / "spec" / "interop.md").write_text("# Nothing numbered\n")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    return tmp_path


def test_tables_lists_and_vectors_are_found_in_their_sections_only():
    assert list(scenarios_of(SPEC)) == ["V1", "T1", "1", "6.10"]
    assert list(scenarios_of("## 8. Acceptance scenarios\n1. G one, T 2. two\n   more of it\n2. G\n")) == ["1", "2"]


def test_marks_are_found_on_tests_on_parameters_and_on_modules():
    assert sorted(name or "" for _, name in marks_of(TESTS)) == ["store 1", "store 6.10", "store T1", "store V1"]


def test_the_report_tells_covered_from_different_from_missing(project, capsys):
    (project / "tests" / "unit" / "test_x.py").write_text(TESTS.replace('"store 1", ', ""))
    (project / "docs" / "known-differences.toml").write_text(
        '[[difference]]\nscenario = "store V1"\nreason = "ours is shorter"\n'
    )
    assert main([], project) == 0
    assert capsys.readouterr().out.splitlines() == [
        "store         4 scenarios:   2 covered, 1 known differences, 1 not covered",
        "    known difference V1: ours is shorter",
        "    not covered: 1",
        "all           4 scenarios:   2 covered, 1 known differences, 1 not covered",
    ]


def test_json_names_the_place_of_each_test(project, capsys):
    (project / "tests" / "unit" / "test_x.py").write_text(TESTS)
    assert main(["--json"], project) == 0
    store = json.loads(capsys.readouterr().out)["documents"]["store"]
    assert store["covered"]["6.10"] == ["tests/unit/test_x.py:4"]
    assert store["not_covered"] == []


@pytest.mark.parametrize("mark", ['"store 2"', '"sotre 1"', '"store"', 'f"store {1}"', "*NAMES"])
def test_a_mark_that_names_no_scenario_fails_with_its_place(project, capsys, mark):
    (project / "tests" / "unit" / "test_x.py").write_text(f"import pytest\npytestmark = pytest.mark.scenario({mark})\n")
    assert main([], project) == 1
    assert capsys.readouterr().err.startswith("tests/unit/test_x.py:2: ")


def test_a_known_difference_that_names_no_scenario_fails(project, capsys):
    (project / "docs" / "known-differences.toml").write_text('[[difference]]\nscenario = "store 9"\nreason = "x"\n')
    assert main([], project) == 1
    assert capsys.readouterr().err == "docs/known-differences.toml: there is no scenario 'store 9'\n"


def test_neighbours_become_ranges_but_vectors_and_scenarios_stay_apart():
    order = ["T1", "T2", "1", "2", "3", "4.1"]
    assert ranges(order, order) == "T1-T2, 1-4.1"
    assert ranges(["T2", "1", "3", "4.1"], order) == "T2, 1, 3-4.1"
    assert ranges([], order) == ""


def test_every_document_of_the_project_is_read_whole_and_every_name_in_its_tests_exists():
    documents, wrong = collect(ROOT)
    assert wrong == []
    counts = {document.name: len(document.scenarios) for document in documents}
    assert counts == {
        "admin": 50,
        "broker": 86,
        "client": 61,
        "controller": 35,
        "grpc": 43,
        "ha": 22,
        "namesrv": 42,
        "remoting": 12,
        "spark": 43,
        "store": 28 + 13,
    }
    assert all(len(set(document.scenarios)) == len(document.scenarios) for document in documents)
