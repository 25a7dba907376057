"""Commands, clients and fixtures against a cluster that wants signatures and TLS."""

from __future__ import annotations

import asyncio
import io
import json
import stat

import pytest
from tests.integration.cli.cli_kit import Ended

from pyromq import Client, Credentials, Producer, sync
from pyromq.cli.main import main
from pyromq.errors import ConfigError, ConnectFailed, SendFailed
from pyromq.remoting import TlsConfig
from pyromq.remoting.issuing import Authority
from pyromq.testing import TestBroker, running_cluster

pytestmark = pytest.mark.slow

KEY, SECRET = "administrator", "a-secret-of-many-words"
ACCOUNTS = f"""accounts:
- accessKey: {KEY}
  secretKey: {SECRET}
  admin: true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def cluster(folder):
    """Every request must be signed, every connection encrypted, every client known."""
    with pytest.raises(SystemExit) as done:
        main(["tls", "init", str(folder), "--host", "127.0.0.1", "--yes"])
    assert not done.value.code
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    with running_cluster(
        None,
        f"tls.config.file={folder / 'tls.properties'}",
        "tls.server.need.client.auth=require",
        "aclEnable=true",
        f"rocketmq.acl.plain.file={folder / 'plain_acl.yml'}",
        f'innerClientAuthenticationCredentials={{"accessKey":"{KEY}","secretKey":"{SECRET}"}}',
    ) as running:
        yield running


@pytest.fixture
def files(folder):
    return ["--tls-ca", f"{folder}/ca.pem", "--tls-cert", f"{folder}/client.pem", "--tls-key", f"{folder}/client.key"]


@pytest.fixture
def run(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as done:
            main([*arguments])
        out, err = capsys.readouterr()
        return Ended(int(done.value.code or 0), out, err)

    return run


@pytest.fixture
def tls(folder):
    return TlsConfig(
        client_auth_server=True,
        client_trust=f"{folder}/ca.pem",
        client_cert=f"{folder}/client.pem",
        client_key=f"{folder}/client.key",
    )


def test_a_context_has_all_that_is_needed(run, cluster, files, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(SECRET + "\n"))
    added = run("context", "add", "safe", "-n", cluster.namesrv, *files, "--access-key", KEY, "--secret-key", "-")
    assert added.code == 0, added.err
    file = tmp_path / "config" / "pyromq" / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("topic", "create", "orders", "-q", "2", "--context", "safe").code == 0
    assert [row["topic"] for row in run("topic", "list", "-o", "json").json] == ["orders"]
    shown = run("context", "show", "-o", "json")
    assert shown.json["tlsCa"] == files[1]
    assert SECRET not in shown.out
    doctor = run("doctor")
    assert doctor.code == 0, doctor.out + doctor.err


def test_the_environment_has_all_that_is_needed(run, cluster, folder, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    monkeypatch.setenv("PYROMQ_ACCESS_KEY", KEY)
    monkeypatch.setenv("PYROMQ_SECRET_KEY", SECRET)
    monkeypatch.setenv("PYROMQ_TLS_CONFIG_FILE", str(folder / "tls.properties"))
    assert run("cluster", "list").code == 0
    assert run("mqadmin", "clusterList").code == 0
    monkeypatch.setenv("PYROMQ_SECRET_KEY", "a-wrong-secret")
    refused = run("topic", "create", "other")
    assert refused.code == 4, refused.err
    assert "wrong-secret" not in refused.err
    assert "Check signature failed for accessKey=administrator" in refused.err
    monkeypatch.delenv("PYROMQ_ACCESS_KEY")
    unsigned = run("topic", "create", "other")
    assert unsigned.code == 4, unsigned.err
    assert "No accessKey is configured" in unsigned.err
    assert "--access-key" in unsigned.err


def test_an_account_is_named_on_the_command_line_and_its_secret_is_not(run, cluster, folder, monkeypatch):
    monkeypatch.setenv("PYROMQ_TLS_CONFIG_FILE", str(folder / "tls.properties"))
    missing = run("--access-key", KEY, "broker", "status", "-n", cluster.namesrv)
    assert missing.code == 2
    assert "PYROMQ_SECRET_KEY" in missing.err
    monkeypatch.setenv("PYROMQ_SECRET_KEY", SECRET)
    assert run("--access-key", KEY, "broker", "status", "-n", cluster.namesrv).code == 0


def test_mqadmins_own_file_signs(run, cluster, folder, tmp_path, monkeypatch):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: {KEY}\nsecretKey: {SECRET}\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    monkeypatch.setenv("PYROMQ_TLS_CONFIG_FILE", str(folder / "tls.properties"))
    done = run("mqadmin", "updateTopic", "-n", cluster.namesrv, "-c", "DefaultCluster", "-t", "classic")
    assert done.code == 0, done.err


def test_plain_text_and_unknown_certificates_are_refused(run, cluster, tmp_path):
    assert run("topic", "list", "-n", cluster.namesrv).code == 5
    (other := tmp_path / "other").mkdir()
    Authority.create(other, "other").issue(other, "client", days=9, server=False)
    added = run("context", "add", "wrong", "-n", cluster.namesrv, "--tls-ca", f"{other}/ca.pem")
    assert added.code == 0, added.err
    failed = run("topic", "list", "--context", "wrong")
    assert failed.code == 5
    assert "CERTIFICATE_VERIFY_FAILED" in failed.err
    assert run("context", "add", "x", "-n", "a:1", "--tls-ca", "nowhere.pem").code == 2
    assert run("context", "add", "x", "-n", "a:1", "--tls-key", f"{other}/ca.pem").code == 2


def test_clients_sign_and_encrypt(cluster, tls, tmp_path, monkeypatch):
    keys = tmp_path / "keys"
    keys.write_text(f"accessKey={KEY}\nsecretKey={SECRET}\n")
    monkeypatch.setenv("MQ_ACCESS_KEY", KEY)
    monkeypatch.setenv("MQ_SECRET_KEY", SECRET)

    async def sent(credentials, encrypted=tls):
        client = Client(cluster.namesrv, credentials=credentials, tls=encrypted)
        async with Producer("makers", client=client) as producer:
            return (await producer.send("signed", b"x")).offset

    for number, credentials in enumerate((Credentials(KEY, SECRET), "env:MQ", f"file:{keys}")):
        assert asyncio.run(sent(credentials)) is not None, number
    with pytest.raises(SendFailed, match="Check signature failed"):
        asyncio.run(sent(Credentials(KEY, "a-wrong-secret")))
    with pytest.raises(ConnectFailed):
        asyncio.run(sent(Credentials(KEY, SECRET), TlsConfig(client_auth_server=True)))
    for wrong in ("env:NOWHERE", f"file:{tmp_path / 'nowhere'}", "secret", "env:"):
        with pytest.raises(ConfigError, match="credentials"):
            Client(cluster.namesrv, credentials=wrong)
    client = sync.Client(cluster.namesrv, credentials="env:MQ", tls=tls)
    with sync.Producer("makers", client=client) as producer:
        assert producer.send("signed", b"x").offset is not None


def test_fixtures_sign_and_encrypt(cluster):
    broker = TestBroker(cluster)
    try:
        broker.create_topic("fixtures", queues=1)
        broker.send("fixtures", b"hello")
        assert [each.body for each in broker.wait_for("fixtures")] == [b"hello"]
    finally:
        broker.close()


def test_the_doctor_finds_a_certificate_that_expires_soon(run, tmp_path):
    Authority.create(tmp_path, "authority").issue(tmp_path, "server", hosts=["127.0.0.1"], days=9, server=True)
    files = [f"tls.server.certPath={tmp_path}/server.pem", f"tls.server.keyPath={tmp_path}/server.key"]
    with running_cluster(None, *files) as cluster:
        found = run("doctor", "--tls", "-n", cluster.namesrv, "-o", "json", "-q")
        assert found.code == 6
        rows = json.loads(found.out)
        assert [row["what"].split()[0] for row in rows] == ["name", "broker"]
        assert all("its certificate expires on" in row["found"] for row in rows)
        shown = run("tls", "show", cluster.namesrv, f"{tmp_path}/ca.pem", "-o", "json")
        assert shown.code == 6
        assert [bool(row["problem"]) for row in json.loads(shown.out)] == [True, False]


def test_certificates_are_renewed_in_their_folder(run, tmp_path):
    assert run("tls", "init", str(tmp_path / "new"), "--dry-run").code == 0
    assert not (tmp_path / "new").exists()
    assert "tls.config.file=" in run("tls", "init", str(tmp_path / "new")).out
    before = {each.name: each.read_bytes() for each in (tmp_path / "new").iterdir()}
    assert run("tls", "init", str(tmp_path / "new"), "--days", "20").code == 0
    after = {each.name: each.read_bytes() for each in (tmp_path / "new").iterdir()}
    assert {name for name in after if after[name] != before[name]} == {
        *("server.pem", "server.key", "client.pem", "client.key")
    }
    assert run("tls", "show", str(tmp_path / "new" / "server.pem")).code == 6
    assert run("tls", "show", "127.0.0.1:1").code == 5
    (tmp_path / "file").write_text("x")
    assert run("tls", "init", str(tmp_path / "file" / "below")).code == 2
