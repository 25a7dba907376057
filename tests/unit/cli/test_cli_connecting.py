"""Which cluster a command is for, and with whose keys."""

from __future__ import annotations

import io
import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.cli import context_file
from pyromq.cli.connecting import DEFAULT, target
from pyromq.cli.context_file import Context, Contexts
from pyromq.cli.failures import CommandFailed
from pyromq.errors import ConfigError

PROD = Context("prod", "mq1:9876;mq2:9876", "who", "secret-word", "token", True, 9.0)


@pytest.fixture
def environ(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def saved(environ):
    """Contexts `prod` with keys, and `dev` without, which is the current one."""
    contexts = Contexts({"prod": PROD, "dev": Context("dev", "dev:9876")}, "dev")
    context_file.save(context_file.path(environ), contexts)
    return contexts


def test_without_anything_it_is_this_machine(environ):
    found = target(None, None, environ)
    assert (found.namesrv, found.source, found.access_key) == (DEFAULT, "default", None)


def test_an_option_beats_a_context_which_beats_the_environment_which_beats_the_current_one(environ, saved):
    assert target(None, None, environ).namesrv == "dev:9876"
    environ["NAMESRV_ADDR"] = "env:9876"
    assert target(None, None, environ).namesrv == "env:9876"
    assert target(None, "prod", environ).namesrv == "mq1:9876;mq2:9876"
    assert target("opt:9876", "prod", environ).namesrv == "opt:9876"
    assert target("opt:9876", None, environ).source == "-n"


def test_keys_of_a_context_do_not_go_to_another_address(environ, saved):
    context_file.save(context_file.path(environ), Contexts(saved.table, "prod"))
    assert target(None, None, environ).secret_key == "secret-word"
    assert target("elsewhere:9876", None, environ).secret_key is None
    assert target("elsewhere:9876", "prod", environ).secret_key == "secret-word"  # said so


def test_controllers_of_a_context_belong_to_its_cluster(environ, saved):
    context = Context("ha", "ha:9876", controller="c1:9878;c2:9878")
    context_file.save(context_file.path(environ), saved.with_context(context))
    assert context_file.load(context_file.path(environ)).get("ha") == context
    assert target(None, "ha", environ).controller == "c1:9878;c2:9878"
    assert target(None, "dev", environ).controller is None
    assert target("elsewhere:9876", "ha", environ).controller is None


def test_keys_come_from_the_environment_or_from_the_file_of_mqadmin(environ, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: rocketmq2\nsecretKey: '12345678' # mine\n")
    environ["ROCKETMQ_HOME"] = str(tmp_path)
    found = target(None, None, environ)
    assert (found.access_key, found.secret_key) == ("rocketmq2", "12345678")
    environ |= {"PYROMQ_ACCESS_KEY": "me", "PYROMQ_SECRET_KEY": "mine"}
    assert target(None, None, environ).access_key == "me"


def test_an_account_that_was_named_goes_with_the_secret_of_the_environment(environ, saved, monkeypatch):
    environ |= {"PYROMQ_ACCESS_KEY": "me", "PYROMQ_SECRET_KEY": "mine"}
    found = target(None, "prod", environ, access_key="other")
    assert (found.access_key, found.secret_key, found.security_token) == ("other", "mine", None)
    del environ["PYROMQ_SECRET_KEY"]
    monkeypatch.setattr("sys.stdin", io.StringIO("not a terminal\n"))
    with pytest.raises(CommandFailed, match="set PYROMQ_SECRET_KEY"):
        target(None, "prod", environ, access_key="other")


def tls_of(found):
    assert found.tls is not None
    return found.tls


def test_tls_is_as_the_context_says_or_the_environment(environ, saved, tmp_path):
    assert target(None, None, environ).tls is None
    assert tls_of(target(None, None, environ, tls=True)).client_enable is False  # the client does it
    found = tls_of(target(None, "prod", environ))
    assert (found.client_enable, found.client_auth_server) == (True, False)
    context = Context("safe", "mq:9876", tls=True, tls_ca="/ca.pem", tls_cert="/me.pem", tls_key="/me.key")
    context_file.save(context_file.path(environ), saved.with_context(context))
    assert context_file.load(context_file.path(environ)).get("safe") == context
    found = tls_of(target(None, "safe", environ))
    assert (found.client_auth_server, found.client_trust) == (True, "/ca.pem")
    assert (found.client_cert, found.client_key) == ("/me.pem", "/me.key")
    environ["PYROMQ_TLS_CLIENT_TRUST_CERT_PATH"] = "/other.pem"
    assert target(None, None, environ).tls is None
    assert tls_of(target(None, None, environ, tls=True)).client_trust == "/other.pem"
    environ["PYROMQ_TLS_ENABLE"] = "true"
    assert tls_of(target(None, None, environ)).client_trust == "/other.pem"
    (tmp_path / "tls.properties").write_text("tls.client.authServer=true\n")
    environ["PYROMQ_TLS_CONFIG_FILE"] = str(tmp_path / "tls.properties")
    assert tls_of(target(None, None, environ)).client_auth_server
    environ["PYROMQ_TLS_ENABLE"] = "perhaps"
    with pytest.raises(ConfigError, match="PYROMQ_TLS_ENABLE"):
        target(None, None, environ)


def test_secrets_are_not_shown_by_accident(environ, saved):
    assert "secret-word" not in repr(target(None, "prod", environ)) + repr(saved)


def test_the_file_is_read_again_as_it_was_written_and_by_its_owner_only(environ, saved):
    file = context_file.path(environ)
    assert context_file.load(file) == saved
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["contexts.json"]


def test_an_unknown_context_is_answered_with_those_there_are(environ, saved):
    with pytest.raises(CommandFailed, match=r"there is no context prd; known contexts: prod"):
        target(None, "prd", environ)


@given(
    st.one_of(
        st.binary(),
        st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
            lambda value: json.dumps({"contexts": value}).encode()
        ),
    )
)
def test_any_file_is_contexts_or_an_error_that_names_it(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("contexts") / "contexts.json"
    file.write_bytes(data)
    try:
        assert isinstance(context_file.load(file), Contexts)
    except ConfigError as exc:
        assert str(file) in str(exc)  # noqa: PT017 - both ends are right


def test_a_context_that_is_deleted_is_not_the_current_one_any_more(saved):
    assert saved.without("dev").current is None
    assert saved.without("prod").current == "dev"
