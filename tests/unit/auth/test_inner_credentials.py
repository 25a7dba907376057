"""The account by which a server signs what it asks of other servers."""

from __future__ import annotations

import pytest

from pyromq.auth.config import signing_hooks
from pyromq.broker.config import check_settings, load_settings
from pyromq.errors import ConfigError
from pyromq.protocol.command import Command
from pyromq.remoting import is_signed_by


def test_requests_of_a_server_are_signed_by_its_own_account():
    given = '{"accessKey": "replica-1", "secretKey": "not-for-logs"}'
    (hook,) = signing_hooks(load_settings(sets=[f"innerClientAuthenticationCredentials={given}"]))
    request = Command.request(21)
    hook.before_request("127.0.0.1:10911", request)
    assert is_signed_by(request, "not-for-logs")
    assert (request.ext or {})["AccessKey"] == "replica-1"


def test_without_an_account_nothing_is_signed():
    assert signing_hooks(load_settings()) == ()


@pytest.mark.parametrize(
    "given", ["replica-1:not-for-logs", "{}", '{"accessKey": "", "secretKey": "not-for-logs"}', '{"accessKey": "a"}']
)
def test_a_malformed_account_is_refused_at_the_start_and_not_repeated(given):
    settings = load_settings(sets=[f"innerClientAuthenticationCredentials={given}"])
    with pytest.raises(ConfigError, match="innerClientAuthenticationCredentials must be") as caught:
        check_settings(settings)
    assert "not-for-logs" not in str(caught.value)
