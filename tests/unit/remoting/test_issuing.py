"""An authority of one's own."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from pyromq.errors import ConfigError
from pyromq.remoting.issuing import Authority

if TYPE_CHECKING:
    from pathlib import Path


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_keys_are_for_their_owner_alone(tmp_path: Path):
    Authority.create(tmp_path, "authority").issue(tmp_path, "client", days=9, server=False)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "client.key": 0o600, "client.pem": 0o644}


def test_a_certificate_names_its_hosts_and_is_of_its_authority(tmp_path: Path):
    hosts = ["mq1.example.com", "10.0.0.1", "::1", "münchen.example"]
    Authority.create(tmp_path, "authority").issue(tmp_path, "server", hosts=hosts, days=9, server=True)
    cert, authority = certificate(tmp_path / "server.pem"), certificate(tmp_path / "ca.pem")
    cert.verify_directly_issued_by(authority)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["mq1.example.com", "xn--mnchen-3ya.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    assert (cert.not_valid_after_utc - datetime.now(UTC)).days == 8


def test_an_authority_is_opened_again_and_never_replaced(tmp_path: Path):
    Authority.create(tmp_path, "authority")
    before = (tmp_path / "ca.pem").read_bytes()
    with pytest.raises(ConfigError, match=r"ca\.key cannot be written: File exists"):
        Authority.create(tmp_path, "another")
    Authority.load(tmp_path).issue(tmp_path, "server", days=9, server=True)
    assert (tmp_path / "ca.pem").read_bytes() == before
    certificate(tmp_path / "server.pem").verify_directly_issued_by(certificate(tmp_path / "ca.pem"))


def test_no_certificate_outlives_its_authority(tmp_path: Path):
    Authority.create(tmp_path, "authority").issue(tmp_path, "server", days=9999, server=True)
    cert, authority = certificate(tmp_path / "server.pem"), certificate(tmp_path / "ca.pem")
    assert cert.not_valid_after_utc <= authority.not_valid_after_utc


def test_a_broken_authority_and_an_impossible_host_are_named(tmp_path: Path):
    authority = Authority.create(tmp_path, "authority")
    with pytest.raises(ConfigError, match="neither an address nor the name of a host"):
        authority.issue(tmp_path, "server", hosts=["a" * 300], days=9, server=True)
    (other := tmp_path / "other").mkdir()
    Authority.create(other, "other")
    (other / "ca.key").rename(tmp_path / "ca.key")
    with pytest.raises(ConfigError, match=r"not the key of ca\.pem"):
        Authority.load(tmp_path)
    (tmp_path / "ca.key").write_text("nothing")
    with pytest.raises(ConfigError, match="cannot be used"):
        Authority.load(tmp_path)
