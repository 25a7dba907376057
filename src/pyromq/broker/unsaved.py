"""Entries of a table that its file does not have yet, and how to take them back if it never will."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Unsaved(Generic[T]):
    """Which entries changed since the file was written, each with what the file has of it: None if it has nothing.

    A write takes everything that was noted before it began. What is noted while it is under way belongs to the next.
    """

    def __init__(self) -> None:
        self._changed: dict[str, T | None] = {}
        self._writing: dict[str, T | None] = {}

    def note(self, name: str, before: T | None) -> None:
        """An entry is about to change; `before` is what it is now."""
        self._changed.setdefault(name, before)

    def is_new(self, name: str) -> bool:
        """Whether the file knows nothing of this entry yet."""
        if name in self._writing:
            return self._writing[name] is None
        return name in self._changed and self._changed[name] is None

    def begin(self) -> None:
        """The table as it is now is being written."""
        self._writing, self._changed = self._changed, {}

    def written(self) -> None:
        """The file has it."""
        self._writing = {}

    def failed(self) -> dict[str, T | None]:
        """The file stays as it was. Gives what has to be put back into the table, None for entries that must go.

        An entry that changed again since stays: the next write decides about it, for both changes.
        """
        back: dict[str, T | None] = {}
        for name, before in self._writing.items():
            if name in self._changed:
                self._changed[name] = before
            else:
                back[name] = before
        self._writing = {}
        return back
