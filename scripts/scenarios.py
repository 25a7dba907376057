"""What is proven and what is left: the scenarios of docs/spec against the tests that name them.

A scenario is a numbered row or item under a document's heading "Acceptance scenarios", or a golden vector (V1, T1)
under "Test vectors". It is called by document and number: "namesrv 12", "broker 6.10", "store T3". A test names what
it proves with `@pytest.mark.scenario("namesrv 12")`. Tests are read, not run, so a name has to be a literal string.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

# How a scenario begins, by what its section is called: a table row, an item of a list, a bold word.
NUMBERED = {
    "Acceptance scenarios": re.compile(r"\| *(\d+(?:\.\d+)?) *\||(\d+)\. "),
    "Test vectors": re.compile(r"\| *(V\d+) *\||\*\*(T\d+)\b"),
}


@dataclass(slots=True)
class Document:
    """The scenarios of one document in its own order, and what became of them."""

    name: str
    scenarios: list[str]
    tests: dict[str, list[str]] = field(default_factory=dict)  # number: places of the tests that name it
    differences: dict[str, str] = field(default_factory=dict)  # number: reason

    @property
    def covered(self) -> list[str]:
        return [number for number in self.scenarios if number in self.tests and number not in self.differences]

    @property
    def missing(self) -> list[str]:
        return [number for number in self.scenarios if number not in self.tests and number not in self.differences]


def scenarios_of(text: str) -> Iterator[str]:
    """The numbers of the scenarios in a document, as they come."""
    pattern = None
    for line in text.splitlines():
        if line.startswith("## "):
            pattern = next((found for title, found in NUMBERED.items() if title in line), None)
        elif pattern and (begin := pattern.match(line)):
            yield begin[1] or begin[2]


def marks_of(source: str) -> Iterator[tuple[int, str | None]]:
    """Line and name of every scenario mark, wherever it stands; None for a name that only running would tell."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark") | ast.Name("mark"), attr="scenario")):
                for argument in node.args:
                    literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                    yield argument.lineno, ast.literal_eval(argument) if literal else None


def collect(root: Path) -> tuple[list[Document], list[str]]:
    """Every document with its state, and a sentence for every name that does not stand for a scenario."""
    documents, wrong = {}, []
    for path in sorted(root.glob("docs/spec/*.md")):
        if numbers := list(scenarios_of(path.read_text())):
            documents[path.stem] = Document(path.stem, numbers)

    def document_of(name: str, place: str) -> tuple[Document | None, str]:
        stem, _, number = name.partition(" ")
        if stem in documents and number in documents[stem].scenarios:
            return documents[stem], number
        wrong.append(f"{place}: there is no scenario {name!r}")
        return None, number

    for path in sorted(root.glob("tests/**/*.py")):
        source = path.read_text()
        for line, name in marks_of(source) if "scenario" in source else ():
            place = f"{path.relative_to(root)}:{line}"
            if name is None:
                wrong.append(f"{place}: a scenario is named by a literal string")
                continue
            document, number = document_of(name, place)
            if document:
                document.tests.setdefault(number, []).append(place)

    known = root / "docs" / "known-differences.toml"
    entries = tomllib.loads(known.read_text()).get("difference", []) if known.exists() else []
    for entry in entries:
        document, number = document_of(entry["scenario"], str(known.relative_to(root)))
        if document:
            document.differences[number] = entry["reason"]
    return list(documents.values()), wrong


def ranges(numbers: list[str], order: list[str]) -> str:
    """`numbers` in short: neighbours in the document become "3-7". Vectors and scenarios are never joined."""
    runs: list[list[str]] = []
    for position, number in enumerate(order):
        if number not in numbers:
            continue
        if runs and runs[-1][-1] == order[position - 1] and number[0].isdigit() == runs[-1][0][0].isdigit():
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def text_report(documents: list[Document]) -> Iterator[str]:
    totals = [0, 0, 0, 0]
    for document in documents:
        counts = [len(document.scenarios), len(document.covered), len(document.differences), len(document.missing)]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        yield summary(document.name, counts)
        for number, reason in document.differences.items():
            yield f"    known difference {number}: {reason}"
        if document.missing:
            yield f"    not covered: {ranges(document.missing, document.scenarios)}"
    yield summary("all", totals)


def summary(name: str, counts: list[int]) -> str:
    return "{:<10} {:>4} scenarios: {:>3} covered, {} known differences, {} not covered".format(name, *counts)


def json_report(documents: list[Document], wrong: list[str]) -> str:
    state = {
        document.name: {
            "covered": {number: document.tests[number] for number in document.covered},
            "known_differences": document.differences,
            "not_covered": document.missing,
        }
        for document in documents
    }
    return json.dumps({"documents": state, "wrong": wrong}, indent=2)


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Which scenarios of docs/spec are covered by tests.")
    parser.add_argument("--json", action="store_true", help="the same as JSON, with the tests of each scenario")
    options = parser.parse_args(arguments)
    documents, wrong = collect(root)
    print(json_report(documents, wrong) if options.json else "\n".join(text_report(documents)))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
