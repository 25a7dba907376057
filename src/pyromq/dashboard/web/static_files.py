"""Static files: all read at the start, served under a version, so that browsers keep them for a year.

Only what was read exists, so no path leads elsewhere.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from starlette.responses import PlainTextResponse, Response

FOLDER = Path(__file__).parent.parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_YEAR = "public, max-age=31536000, immutable"


@cache
def files() -> dict[str, bytes]:
    """The content of each file by its path below `static`."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }


@cache
def version() -> str:
    """Changes with any of the files."""
    whole = hashlib.sha256()
    for name, content in files().items():
        whole.update(name.encode() + content)
    return whole.hexdigest()[:12]


def serve(path: str, if_none_match: str) -> Response:
    """The file at `{version}/{name}`. An old version gets the new file, but is told not to keep it."""
    asked, _, name = path.partition("/")
    content = files().get(name)
    if content is None:
        return PlainTextResponse("Not found.\n", 404)
    headers = {"Cache-Control": _YEAR if asked == version() else "no-cache", "ETag": f'"{version()}"'}
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=headers)
