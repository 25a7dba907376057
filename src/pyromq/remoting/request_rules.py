"""What holds for a request by its code alone: what it needs, how large its body may be, on which ports it is served.

Each server has one table, `RULES`, with a line for every code that it serves (broker/requests.py, namesrv/requests.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import SMALL_BODY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyromq.protocol.rights import Needs


class BodySize(Enum):
    """How large the body of a request may be."""

    SMALL = "what every request may have: 64 KiB"
    LIST = "lists of what a client uses: maxRequestBodySize"
    MESSAGE = "a message, or a batch of them: maxMessageSize"
    FRAME = "whatever fits into a frame: the tables of a whole broker"


class Admin(Enum):
    """Whether the access control of 4.x, which knows of publishing and subscribing only, asks for an administrator."""

    NEVER = "any account may, if it may publish or subscribe where that is needed"
    STRICT = "with aclStrict, the default; RocketMQ 4.x lets every account do it"
    ALWAYS = "whatever aclStrict says: RocketMQ 4.x asks for it, too, or does not have this request"


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for one request code."""

    body: BodySize = BodySize.SMALL
    # Without a default, so that no code can be declared without.
    needs: Needs = field(kw_only=True)
    admin: Admin = field(default=Admin.NEVER, kw_only=True)
    # The VIP port serves senders who must not wait, so nobody is held there.
    on_vip_port: bool = field(default=True, kw_only=True)


class BodyLimit(NamedTuple):
    """Most bytes of a body, the setting that says so, and how more is refused."""

    size: int
    setting: str
    code: ResponseCode = ResponseCode.SYSTEM_ERROR
    remark: str = ""  # in place of one that names size and setting


_SMALL = BodyLimit(SMALL_BODY, "the same for all requests without lists or messages")


def body_limits(
    rules: Mapping[int, Rule], *, max_list: int, max_frame: int, message: Callable[[], BodyLimit] | None = None
) -> Callable[[int], BodyLimit]:
    """The limit for the body of a request, by its code. `message` is asked each time: that limit may change."""
    lists = BodyLimit(max_list, "maxRequestBodySize")
    frames = BodyLimit(max_frame, "com.rocketmq.remoting.frameMaxLength")

    def limit(code: int) -> BodyLimit:
        rule = rules.get(code)
        body = rule.body if rule is not None else BodySize.SMALL
        if body is BodySize.MESSAGE and message is not None:
            return message()
        if body is BodySize.LIST:
            return lists
        return frames if body is BodySize.FRAME else _SMALL

    return limit
