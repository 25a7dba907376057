"""One command of the remoting protocol: a request or a reply, with the fields of its header and its body.

Both header serialisations (`json_header`, `binary_header`) carry exactly these fields; `frame` puts them on the wire.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .header import Header

    H = TypeVar("H", bound=Header)
    # A body to send may come in pieces, so that a pull's reply is made of slices of the mapped commit log.
    Body = bytes | bytearray | memoryview | Sequence[bytes | memoryview]
else:
    Body = Any

I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

# `version` of what we send: RocketMQ 4.9.8. Peers gate behaviour on it (docs/spec/remoting.md 1.8).
PROTOCOL_VERSION = 409

RESPONSE = 1  # bit of `flag`: this is a reply
ONEWAY = 2  # bit of `flag`: no reply is expected


class SerializeType(IntEnum):
    """How a header is written; the byte in front of its length says which."""

    JSON = 0
    ROCKETMQ = 1


class Language(StrEnum):
    """What a peer is written in. By name in JSON headers, by position in binary ones."""

    JAVA = "JAVA"
    CPP = "CPP"
    DOTNET = "DOTNET"
    PYTHON = "PYTHON"
    DELPHI = "DELPHI"
    ERLANG = "ERLANG"
    RUBY = "RUBY"
    OTHER = "OTHER"
    HTTP = "HTTP"
    GO = "GO"
    PHP = "PHP"
    OMS = "OMS"
    RUST = "RUST"
    NODE_JS = "NODE_JS"


class Command(msgspec.Struct, gc=False):
    """A request, or the reply to one. A plain value: no connection, no clock.

    The defaults are what an absent member means on the wire. `opaque` matches a reply to its request;
    the sender numbers its requests. `ext` holds the custom header as text, see `header()`.
    """

    code: I32 = 0
    language: Language = Language.JAVA
    version: I32 = 0
    opaque: I32 = 0
    flag: I32 = 0
    remark: str | None = None
    ext: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    # The next three are not part of a header. Decoders assign the first two, whatever a peer may write under these
    # names, and the connection that reads a request the last: when that was, by `time.monotonic()`.
    body: Body | None = msgspec.field(default=None, name="(body)")
    serialize: SerializeType = msgspec.field(default=SerializeType.JSON, name="(serialize)")
    received: float = msgspec.field(default=0.0, name="(received)")

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: Body | None = None,
        *,
        oneway: bool = False,
        serialize: SerializeType = SerializeType.JSON,
    ) -> Command:
        """A new request; the connection that sends it sets `opaque`."""
        ext = header.to_ext() if header is not None else None
        flag = ONEWAY if oneway else 0
        return cls(int(code), Language.PYTHON, PROTOCOL_VERSION, 0, flag, None, ext, body, serialize)

    def reply(
        self,
        code: int = 0,
        remark: str | None = None,
        *,
        header: Header | None = None,
        body: Body | None = None,
    ) -> Command:
        """A reply to this request: same number, same header serialisation."""
        ext = header.to_ext() if header is not None else None
        return Command(
            int(code), Language.PYTHON, PROTOCOL_VERSION, self.opaque, RESPONSE, remark, ext, body, self.serialize
        )

    def header(self, kind: type[H]) -> H:
        """The custom header as `kind`. Fields that are missing or malformed raise `MissingField` once they are read."""
        return kind.from_ext(self.ext)

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY != 0

    @property
    def body_bytes(self) -> bytes:
        """The body in one piece; empty if there is none. A received body always is in one piece."""
        body = self.body
        if isinstance(body, bytes):
            return body
        if body is None:
            return b""
        if isinstance(body, bytearray | memoryview):
            return bytes(body)
        return b"".join(body)
