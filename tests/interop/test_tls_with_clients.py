"""Official clients with the certificates that `pyromq tls init` makes: both sides prove who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import Client
from tests.interop.process import PeerFailed

from pyromq.remoting.issuing import Authority
from pyromq.testing import Cluster, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop


def made(folder: Path, name: str) -> Path:
    """A folder with an authority, and what it signed."""
    (place := folder / name).mkdir()
    authority = Authority.create(place, name)
    authority.issue(place, "server", hosts=["127.0.0.1"], days=9, server=True)
    authority.issue(place, "client", days=9, server=False)
    return place


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("certificates"), "ours")


@pytest.fixture(scope="module")
def cluster(certificates: Path) -> Iterator[Cluster]:
    with running_cluster(
        None,
        "tls.server.mode=enforcing",
        "tls.server.need.client.auth=require",
        f"tls.server.certPath={certificates}/server.pem",
        f"tls.server.keyPath={certificates}/server.key",
        f"tls.server.trustCertPath={certificates}/ca.pem",
        "tls.enable=true",
        "tls.client.authServer=true",
        f"tls.client.trustCertPath={certificates}/ca.pem",
        f"tls.client.certPath={certificates}/server.pem",
        f"tls.client.keyPath={certificates}/server.key",
    ) as running:
        yield running


def java(version: str, home: Path, cluster: Cluster, trust: Path, own: Path) -> Client:
    home.mkdir(parents=True, exist_ok=True)
    (file := home / "tls.properties").write_text(
        f"tls.test.mode.enable=false\ntls.client.authServer=true\ntls.client.trustCertPath={trust}/ca.pem\n"
        f"tls.client.certPath={own}/client.pem\ntls.client.keyPath={own}/client.key\n"
    )
    return Client(version, home, cluster.namesrv, jvm=("-Dtls.enable=true", f"-Dtls.config.file={file}"))


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_java_clients_with_a_certificate_send_and_consume(
    version: str, cluster: Cluster, certificates: Path, tmp_path: Path
) -> None:
    client = java(version, tmp_path / "client", cluster, certificates, certificates)
    topic = f"sealed-{version.replace('.', '-')}"
    assert len(client.produce(topic, 10)) == 10
    assert set(client.consume(topic, f"{topic}-group", 10)) == {f"{topic}-{n}" for n in range(10)}


@pytest.mark.parametrize("side", ["server", "client"])
def test_java_clients_and_our_servers_refuse_certificates_of_others(
    side: str, cluster: Cluster, certificates: Path, tmp_path: Path
) -> None:
    theirs = made(tmp_path, "theirs")
    trust, own = (theirs, certificates) if side == "server" else (certificates, theirs)
    client = java("5.5.0", tmp_path / "client", cluster, trust, own)
    with pytest.raises(PeerFailed):
        client.produce("refused", 1)
