"""For MkDocs: links of the documents to files of the repository lead to a page with that file.

The same documents are read in the repository, where `../examples/send.py` is a file beside them, and on the site, where
nothing outside of docs/ exists. So whatever a page links to out there becomes a page of the site, made on the fly.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "repository"

_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)#\s]+)([^)]*\))")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".sql": "sql"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    wanted: set[Path] = set()
    for file in files.documentation_pages():
        for _, target, _ in _LINK.findall(file.content_string):
            if (path := _outside(file.src_uri, target)) is not None:
                wanted.add(path)
    for path in sorted(wanted):
        files.append(File.generated(config, _page_of(path), content=_content(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    if here.startswith(f"{FOLDER}/"):
        return markdown

    def led(match: re.Match[str]) -> str:
        path = _outside(here, match[2])
        if path is None:
            listed = _folder_of_pages(here, match[2])
            return (
                match[0]
                if listed is None
                else f"{match[1]}{posixpath.relpath(listed, posixpath.dirname(here) or '.')})"
            )
        return f"{match[1]}{posixpath.relpath(_page_of(path), posixpath.dirname(here) or '.')}{match[3]}"

    return _LINK.sub(led, markdown)


def _outside(page: str, target: str) -> Path | None:
    """The file or folder of the repository that a link leads to, if it is outside of docs/."""
    path = (ROOT / "docs" / posixpath.dirname(page) / target).resolve()
    if path.is_relative_to(ROOT / "docs") or not path.is_relative_to(ROOT) or not path.exists():
        return None
    return path


def _folder_of_pages(page: str, target: str) -> str | None:
    """Inside of docs/ a link to a folder leads to its first page, or to a file that is none to itself."""
    path = (ROOT / "docs" / posixpath.dirname(page) / target).resolve()
    if not path.is_dir():
        return None
    return min(path.glob("*.md")).relative_to(ROOT / "docs").as_posix()


def _page_of(path: Path) -> str:
    return f"{FOLDER}/{path.relative_to(ROOT).as_posix()}.md"


def _content(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return "\n".join([f"# {name}", "", *(f"- `{each.name}`" for each in sorted(path.glob("[!_.]*")))])
    text = path.read_text()
    if path.suffix == ".md":
        # Its own links lead from another place; the words are what counts here.
        return re.sub(r"!?\[([^\]]*)\]\((?!\w+:)[^)]*\)", r"\1", text)
    return f"# {name}\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"
