"""Signed sends: what access control costs, of both generations, and next to Apache 5.5.0 with its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tests.interop.peers import NameServer

from pyromq.remoting import SigningHook

from . import broker_frames as frames
from .broker_peers import scratch, spawn
from .broker_rounds import Contest, title, warm_seconds
from .broker_table import progress, show
from .load import drive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .broker_peers import Peer

BODY = 1024
CONNECTIONS, WINDOW = 4, 64
ACCOUNT = ("benchmarks", "b3nchmark-s3cret")
INNER = f'{{"accessKey":"{ACCOUNT[0]}","secretKey":"{ACCOUNT[1]}"}}'
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": f'{{"username":"{ACCOUNT[0]}","password":"{ACCOUNT[1]}"}}',
    "innerClientAuthenticationCredentials": INNER,
}
# Without these names 5.5.0 lets everybody do everything.
_AUTH = "org.apache.rocketmq.auth"
APACHE = USERS | {
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
ACCOUNTS = f"""
accounts:
- accessKey: {ACCOUNT[0]}
  secretKey: {ACCOUNT[1]}
  admin: true
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
"""


def main(seconds: float) -> None:
    with _brokers() as (names, peers):
        signed = [frames.send(BODY), *[frames.send(BODY, signs=SigningHook(*ACCOUNT))] * 3]
        for peer, frame in zip(peers, signed, strict=True):
            drive(peer.port, frame, CONNECTIONS, WINDOW, seconds if peer.make == "ours" else warm_seconds(seconds))
        _check(peers)
        contest = Contest(peers, seconds)
        measured = contest.run("signed sends", signed, CONNECTIONS, WINDOW)
        notes = contest.notes()
        _check(peers)
    unsigned, *_, theirs = measured
    rows = [
        (name, f"{each.rate:,.0f}", each.rate / unsigned.rate, each.rate / theirs.rate, each.p99, each.cpu)
        for name, each in zip(names, measured, strict=True)
    ]
    columns = ("", "messages/s", "to unsigned", "to 5.5.0", "p99 ms", "CPU µs")
    show(title(f"Sends of {BODY} B, {CONNECTIONS} × {WINDOW}", seconds), columns, rows, notes)


@contextlib.contextmanager
def _brokers() -> Iterator[tuple[list[str], list[Peer]]]:
    with scratch() as home, contextlib.ExitStack() as stack:
        (home / "plain_acl.yml").write_text(ACCOUNTS)
        plain: dict[str, Any] = {
            "aclEnable": "true",
            "rocketmq.acl.plain.file": home / "plain_acl.yml",
            "innerClientAuthenticationCredentials": INNER,
        }
        made: list[tuple[str, str, dict[str, Any]]] = [
            ("ours, open", "ours", {}),
            ("ours, accounts of 4.x", "ours", plain),
            ("ours, users of 5.x", "ours", USERS),
            ("Apache 5.5.0, users", "Apache", APACHE),
        ]
        progress(f"starting {', '.join(name for name, _, _ in made)}")
        peers = []
        for number, (_, make, settings) in enumerate(made):
            namesrv = stack.enter_context(NameServer("ours", home / f"namesrv-{number}"))
            peers.append(peer := spawn(make, home / f"broker-{number}", namesrv.address, **settings))
            stack.enter_context(peer.process)
        for peer in peers:
            peer.wait_until_booted()
        yield [name for name, _, _ in made], peers


def _check(peers: list[Peer]) -> None:
    """See that signed sends are taken, and others only where everybody may send: the driver counts any answer."""
    signed, unsigned = (frames.send(BODY, signs=signs) for signs in (SigningHook(*ACCOUNT), None))
    for number, peer in enumerate(peers):
        assert frames.ask(peer.port, signed).code == 0, peer
        assert (frames.ask(peer.port, unsigned).code == 0) is (number == 0), peer
