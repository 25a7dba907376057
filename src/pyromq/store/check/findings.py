"""Findings of a store check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"  # a message cannot be read, or the store will not open
    WARNING = "warning"  # messages are safe; something else is wrong
    NOTE = "note"  # worth knowing; nothing to repair


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency. `where` is a path, or a place in a queue as topic/queue/offset; `what` is a sentence."""

    severity: Severity
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.what}"


class Report:
    """Collects findings until they are taken."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    def error(self, where: object, what: str) -> None:
        self.add(Severity.ERROR, where, what)

    def warning(self, where: object, what: str) -> None:
        self.add(Severity.WARNING, where, what)

    def note(self, where: object, what: str) -> None:
        self.add(Severity.NOTE, where, what)

    def add(self, severity: Severity, where: object, what: str) -> None:
        self._found.append(Finding(severity, str(where), what))

    def take(self) -> list[Finding]:
        """The findings since the last call."""
        found, self._found = self._found, []
        return found
