"""A name server with a controller inside, ours or Apache's, and a group of Apache brokers under it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.interop import wire
from tests.interop.apache import Broker
from tests.interop.peers import NameServer
from tests.interop.process import free_port, stop_all, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A slave of 5.5.0 learns where to replicate from with its registration, up to 30 s after the master's.
TOGETHER_WITHIN = 60.0
GROUP = "controllers"


class ControllerInNameServer(NameServer):
    """A name server that has a controller, on a port of its own (docs/spec/controller.md 1)."""

    def __init__(self, make: str, home: Path, **settings: object) -> None:
        super().__init__(make, home)
        self.controller = f"127.0.0.1:{free_port()}"
        config = {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": GROUP,
            "controllerDLegerPeers": f"n0-{self.controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "controller",
            **settings,
        }
        with (home / "namesrv.properties").open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in config.items())


def broker_of(version: str, home: Path, server: ControllerInNameServer, name: str) -> Broker:
    """A broker that gets its role from the controller."""
    home.mkdir(parents=True, exist_ok=True)
    return Broker(
        version,
        home,
        server.address,
        name=name,
        enableControllerMode="true",
        controllerAddr=server.controller,
        brokerId=-1,
        brokerRole="SLAVE",
        allAckInSyncStateSet="true",
    )


@contextmanager
def apache_pair(server: ControllerInNameServer, home: Path, name: str) -> Iterator[list[Broker]]:
    """Two brokers of one name: the first is master, and both are registered."""
    first = broker_of("5.5.0", home / "first", server, name)
    brokers = [first]
    try:
        first.wait_until_booted()
        wait_until(lambda: "0" in addresses(server, name), TOGETHER_WITHIN, f"{name} has a master")
        brokers.append(broker_of("5.5.0", home / "second", server, name))
        brokers[1].wait_until_booted()
        wait_until(lambda: len(addresses(server, name)) == 2, TOGETHER_WITHIN, f"{name} has two brokers")
        yield brokers
    finally:
        stop_all(broker.process for broker in brokers)


def addresses(server: NameServer, name: str) -> dict[str, str]:
    """What the name server says of the brokers of that name, by id."""
    return wire.brokers(server.address).get(name, {})
