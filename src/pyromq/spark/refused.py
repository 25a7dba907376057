"""What a broker refuses to an account, said so that whoever reads it knows which right is missing where."""

from __future__ import annotations

from pyromq.errors import BrokerError, NoPermission, PyroMQError

# Brokers of 4.9 answer with code 1, which may mean anything, and the name of their exception.
ACL_EXCEPTION = "AclException"


def is_refused(error: PyroMQError) -> bool:
    """Whether access control is the reason, or a broker or topic that takes nothing from anybody."""
    return isinstance(error, BrokerError) and (isinstance(error, NoPermission) or ACL_EXCEPTION in error.remark)


def missing_right(doing: str, topic: str, right: str, error: PyroMQError) -> PyroMQError:
    """`error`, with what was to be done and which permission that needs, if access control is the reason."""
    if not isinstance(error, BrokerError) or not is_refused(error):
        return error
    named = NoPermission(f"{doing} needs the {right} permission: {error.remark}", error.server)
    named.topic = topic
    return named
