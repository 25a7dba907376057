"""The documents: what they show is what the files say, and every block of Python in them compiles."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from scripts import reference
from typer import Typer

from pyromq.cli.main import NOUNS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, *sorted(path for path in DOCS.rglob("*.md") if "spec" not in path.parts)]


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language="python"):
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_python_compiles(page):
    for block in blocks(page):
        compile(block, name_of(page), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- file:" in page.read_text()], ids=name_of)
def test_what_a_page_shows_of_a_file_is_what_the_file_says(page):
    assert reference.with_files(page.read_text()) == page.read_text()


def test_a_block_gets_the_file_that_it_names():
    page = "a\n<!-- file: examples/totals.sql -->\n```sql\nold\n```\nb\n```sql\nkept\n```\n"
    made = reference.with_files(page)
    assert (ROOT / "examples" / "totals.sql").read_text() in made
    assert "old" not in made
    assert "kept" in made


def test_both_readmes_begin_with_the_same_commands_and_program():
    english, chinese = READMES
    assert blocks(english)[0] == blocks(chinese)[0]
    assert len(blocks(english)[0].splitlines()) < 20
    for command in ("pip install .", "pyromq up", "make demo", "make test"):
        assert command in english.read_text()
        assert command in chinese.read_text()


def test_every_command_that_a_page_names_exists():
    # At the beginning of a line in a block, after a prompt, or of words between backquotes.
    command = re.compile(r"(?:^ *(?:\$ )?|`)pyromq ([a-z][a-z-]+)(?=[`\s])", re.MULTILINE)
    named = {(page.name, word) for page in PAGES for word in command.findall(page.read_text())}
    assert len(named) > 20
    assert {(page, word) for page, word in named if word not in NOUNS} == set()


def test_every_file_and_room_that_the_design_names_exists():
    page, source = (DOCS / "design.md").read_text(), ROOT / "src" / "pyromq"
    files = set(re.findall(r"`((?:broker|store|remoting|protocol|spark|client)/[\w/.]+)`", page))
    assert len(files) > 15
    assert {name for name in files if not (source / name).exists()} == set()

    rooms = {
        (package, room)
        for packages, knows in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \|", page, re.MULTILINE)
        for package in re.findall(r"`(\w+)`", packages)[:1]
        for room in re.findall(r"`(\w+)/`", knows)
    }
    assert len(rooms) > 20
    assert {(package, room) for package, room in rooms if not (source / package / room).is_dir()} == set()
    missing = {
        (folder.parent.name, folder.name)
        for package in ("broker", "store", "spark", "admin", "cli")
        for folder in (source / package).iterdir()
        if (folder / "__init__.py").exists()
    } - rooms
    assert missing == set()


def test_every_page_has_its_place_in_the_navigation():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def leaves(node):
        if isinstance(node, str):
            return [node]
        return [leaf for each in (node.values() if isinstance(node, dict) else node) for leaf in leaves(each)]

    listed = leaves(config["nav"])
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_reference_knows_arguments_options_and_defaults():
    app = Typer()

    @app.command()
    def feed(animal: str, times: int = 3) -> None:
        """Give | it food."""

    page = "\n".join(reference.command_section("pyromq feed", reference.command_of(app)))
    assert "`pyromq feed [OPTIONS] ANIMAL`" in page
    assert "Give \\| it food." in page
    assert "| `--times` `TIMES` |  Default `3`. |" in page
