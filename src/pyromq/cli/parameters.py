"""Arguments and options that many verbs take.

The shell completes a parameter named `topic` or `group`; if its value does not exist, the error suggests similar names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from .failures import CommandFailed, Exit

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)]
TopicOption = Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic.")]
ClusterName = Annotated[str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Only this cluster.")]
Brokers = Annotated[
    list[str] | None,
    typer.Option("-b", "--broker", metavar="NAME", help="Only this broker, by name or address; repeatable."),
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where to make a change: on some brokers, in a cluster, or everywhere."""

    cluster: ClusterName = None
    brokers: Brokers = None

    @property
    def chosen(self) -> dict[str, Any]:
        """The form that AdminClient's methods expect."""
        return {"cluster": self.cluster, "brokers": self.brokers or None}

    def __str__(self) -> str:
        if self.brokers:
            return ", ".join(self.brokers)
        return f"all brokers of {self.cluster}" if self.cluster else "all brokers"


_PERMS = {"2": 2, "4": 4, "6": 6, "w": 2, "r": 4, "rw": 6, "wr": 6}
_PAIR = re.compile(r"([^=\s]+)=(.*)", re.DOTALL)


def perm_of(text: str) -> int:
    """The bits of a permission: r, w, rw, or RocketMQ's 4, 2, 6."""
    if text.lower() not in _PERMS:
        raise CommandFailed(f"{text!r} is not a permission; use r, w or rw (4, 2, 6)", Exit.USAGE)
    return _PERMS[text.lower()]


def pairs_of(words: list[str]) -> dict[str, str]:
    """KEY=VALUE words as a dict; two words without = are a key and its value."""
    if len(words) == 2 and not any("=" in word for word in words):
        return {words[0]: words[1]}
    pairs = {}
    for word in words:
        if not (match := _PAIR.fullmatch(word)):
            raise CommandFailed(f"{word!r} is not KEY=VALUE", Exit.USAGE)
        pairs[match[1]] = match[2]
    return pairs
