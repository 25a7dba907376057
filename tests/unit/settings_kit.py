"""Changing the settings of a server as a request does, without the file in between."""

from __future__ import annotations


def change(live, text, peer="peer", **now):
    """Plan a change and let it take effect; gives the plan. `now` is for those settings that have a version."""
    update = live.planned(text, peer)
    if update is not None:
        live.apply(update, peer, **now)
    return update
