"""TLS beside plain text on one port, and for clients.

The first byte of a connection tells them apart: a TLS handshake starts with 0x16, a legal frame with 0x00.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pyromq.errors import ConfigError
from pyromq.settings import Settings, option, options_of, read_file

HANDSHAKE = 0x16


class TlsMode(Enum):
    """Whether a server accepts TLS, plain text, or both."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """RocketMQ's own `tls.*` keys, for both ends."""

    config_file: str = option(
        "tls.config.file",
        "/etc/rocketmq/tls.properties",
        "Properties file with more `tls.*` keys; they apply where nothing else sets them.",
    )
    mode: TlsMode = option(
        "tls.server.mode", TlsMode.PERMISSIVE, "`enforcing` refuses plain text, `disabled` refuses TLS."
    )
    test_mode: bool = option(
        "tls.test.mode.enable",
        False,
        "Serve a self-signed certificate if none is set: good for encryption, proof of nothing. `pyromq up` sets it.",
    )
    server_cert: str = option("tls.server.certPath", "", "Certificate chain of the server, PEM.")
    server_key: str = option("tls.server.keyPath", "", "Private key of the server, PEM.")
    server_key_password: str = option("tls.server.keyPassword", "", "Password of the server's key.", secret=True)
    server_auth_client: bool = option(
        "tls.server.authClient", False, "Ask clients for a certificate and check those that send one."
    )
    server_trust: str = option("tls.server.trustCertPath", "", "Certificates that clients are checked against, PEM.")
    server_need_client_auth: str = option(
        "tls.server.need.client.auth",
        "none",
        "`require` refuses clients without a certificate, `optional` checks those that have one.",
        choices=("none", "optional", "require"),
    )
    client_enable: bool = option("tls.enable", False, "Clients: speak TLS.")
    client_auth_server: bool = option("tls.client.authServer", False, "Clients: check the server's certificate.")
    client_trust: str = option("tls.client.trustCertPath", "", "Clients: certificates to check servers against, PEM.")
    client_cert: str = option("tls.client.certPath", "", "Clients: own certificate chain, PEM.")
    client_key: str = option("tls.client.keyPath", "", "Clients: own private key, PEM.")
    client_key_password: str = option(
        "tls.client.keyPassword", "", "Clients: password of the private key.", secret=True
    )


def with_tls_file(settings: Settings) -> Settings:
    """`settings`, completed from the TLS file they name. ConfigError if it was set explicitly and cannot be read.

    The default path in the server's own file does not count as explicit: a run-time change writes all settings there.
    """
    defaults = TlsConfig()
    config = settings[TlsConfig]
    file = Path(config.config_file)
    if config.config_file == defaults.config_file and not file.exists():
        return settings
    open_keys = {
        declared.key
        for declared in options_of(TlsConfig)
        if getattr(config, declared.name) == getattr(defaults, declared.name)
        and not settings.origin(declared.key).startswith(("--set", "argument", "environment"))
    }
    return settings.updated([item for item in read_file(file) if item.key in open_keys]).settings


def server_context(config: TlsConfig) -> ssl.SSLContext | None:
    """A server's TLS context; None if it has no certificate and may not make one.

    Making one takes some milliseconds and imports `cryptography`: call this off the event loop.
    """
    if not config.server_cert and not config.test_mode:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.server_cert:
        _load_cert(context, config.server_cert, config.server_key, config.server_key_password)
    else:
        _load_self_signed(context)
    if config.server_auth_client or config.server_need_client_auth != "none":
        need = config.server_need_client_auth == "require"
        context.verify_mode = ssl.CERT_REQUIRED if need else ssl.CERT_OPTIONAL
        _load_trust(context, config.server_trust, "tls.server.trustCertPath")
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """A client's TLS context. Host names are never checked: brokers are known by address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if config.client_auth_server:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trust(context, config.client_trust, "tls.client.trustCertPath")
    else:
        context.verify_mode = ssl.CERT_NONE
    if config.client_cert:
        _load_cert(context, config.client_cert, config.client_key, config.client_key_password)
    return context


def _load_cert(context: ssl.SSLContext, cert: str, key: str, password: str) -> None:
    # With a function, OpenSSL does not ask on the terminal if the key is encrypted.
    try:
        context.load_cert_chain(cert, key or None, lambda: password)
    except (OSError, ValueError) as exc:  # an SSLError is an OSError; ValueError: a password beyond any limit
        raise ConfigError(f"certificate {cert} with key {key or cert} cannot be used: {exc}") from exc


def _load_trust(context: ssl.SSLContext, trust: str, key: str) -> None:
    if not trust:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(trust)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{key} {trust} cannot be used: {exc}") from exc


def _load_self_signed(context: ssl.SSLContext) -> None:
    import tempfile

    from .issuing import self_signed

    # The ssl module reads certificates only from files.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "self-signed.pem")
        path.write_bytes(self_signed())
        context.load_cert_chain(path)
