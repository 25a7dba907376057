"""Check that every relative link in the project's documents leads to a file that exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")  # not a URL, not a place in the same page


def broken_links(page: Path) -> list[str]:
    return [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]


def main() -> int:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    broken = [f"{page.relative_to(ROOT)}: {target} does not exist" for page in pages for target in broken_links(page)]
    print("\n".join(broken) if broken else f"{len(pages)} documents, every link leads somewhere")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
