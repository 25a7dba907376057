"""How custom headers are declared, read and written."""

from __future__ import annotations

import pytest
from msgspec import field

from pyromq.errors import MissingField, RemoteProtocolError
from pyromq.protocol.header import I16, I32, I64, Header


class Sample(Header):
    queue_id: I32
    topic: str
    is_force: bool
    begin_offset: I64
    client_id: str = field(name="clientID")
    level: I16 | None = None
    times: I32 = 3
    unit_mode: bool = False
    order: bool | None = None
    remark: str | None = None


WHOLE = {"queueId": "7", "topic": "orders", "isForce": "true", "beginOffset": "9000000000", "clientID": "c1"}


def test_wire_names_are_camel_case_unless_the_field_says_otherwise():
    assert Sample(7, "orders", True, 9_000_000_000, "c1").to_ext() == {**WHOLE, "times": "3", "unitMode": "false"}


def test_a_header_is_read_from_its_text_map():
    header = Sample.from_ext({**WHOLE, "level": "-2", "times": "5", "unitMode": "TRUE", "order": "no", "remark": ""})
    assert header == Sample(7, "orders", True, 9_000_000_000, "c1", -2, 5, True, False, "")


def test_absent_fields_take_their_defaults():
    assert Sample.from_ext(WHOLE) == Sample(7, "orders", True, 9_000_000_000, "c1", None, 3, False, None, None)


def test_unknown_keys_and_other_spellings_are_ignored():
    ext = {"bname": "rack1", "queue_id": "7", "QueueId": "7", "clientId": "c1"}
    with pytest.raises(MissingField):
        _ = Sample.from_ext(ext).queue_id


def test_a_field_that_is_none_is_not_written():
    assert "level" not in Sample(1, "", False, 0, "").to_ext()
    assert Sample(1, "", False, 0, "", level=0).to_ext()["level"] == "0"
    assert Sample(1, "", False, 0, "").to_ext()["topic"] == ""


@pytest.mark.parametrize("ext", [None, {}])
def test_a_missing_field_is_an_error_only_when_it_is_read(ext):
    header = Sample.from_ext(ext)
    assert header.times == 3
    for name, wire in [("queue_id", "queueId"), ("topic", "topic"), ("is_force", "isForce"), ("client_id", "clientID")]:
        with pytest.raises(MissingField) as caught:
            getattr(header, name)
        assert caught.value.field == wire
        assert caught.value.header == "Sample"
        assert str(caught.value) == f"Sample needs the field {wire}"
    assert issubclass(MissingField, RemoteProtocolError)


def test_one_missing_field_does_not_spoil_the_others():
    header = Sample.from_ext({**WHOLE, "queueId": "seven"})
    assert (header.topic, header.is_force, header.begin_offset, header.client_id) == (
        "orders",
        True,
        9_000_000_000,
        "c1",
    )
    with pytest.raises(MissingField, match="queueId"):
        _ = header.queue_id


def test_a_header_with_a_missing_field_cannot_be_sent():
    with pytest.raises(MissingField, match="queueId"):
        Sample.from_ext({"topic": "orders"}).to_ext()


def test_a_header_with_missing_fields_can_be_logged():
    assert repr(Sample.from_ext({"topic": "orders"})) == (
        "Sample(queue_id=<unset>, topic='orders', is_force=<unset>, begin_offset=<unset>, client_id=<unset>, "
        "level=None, times=3, unit_mode=False, order=None, remark=None)"
    )


def test_an_attribute_that_was_never_declared_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="queueId"):
        _ = Sample.from_ext(WHOLE).queueId  # type: ignore[attr-defined]  # that is the point


def test_a_header_of_ours_is_complete():
    with pytest.raises(TypeError):
        Sample(7, "orders")  # type: ignore[call-arg]  # that is the point


# Values, as Java parses them


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("7", 7),
        ("+1", 1),
        ("-1", -1),
        ("007", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0" * 40 + "12", 12),
        ("-" + "0" * 40 + "2147483648", -(2**31)),
    ],
)
def test_integers_that_java_parses(text, value):
    assert Sample.from_ext({"queueId": text}).queue_id == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " 1",
        "1 ",
        "1\n",
        "+",
        "-",
        "--1",
        "+-1",
        "1.0",
        "1.",
        "1e3",
        "0x10",
        "1_000",
        "1,000",
        "1L",
        "null",
        "true",
        "NaN",
        "²",
        "2147483648",
        "-2147483649",
        "9" * 19,
        "9" * 20,
        "9" * 5000,
        "0" * 5000,
    ],
)
def test_integers_that_java_does_not_parse_are_missing(text):
    header = Sample.from_ext({"queueId": text, "times": text, "level": text})
    assert header.times == 3
    assert header.level is None
    with pytest.raises(MissingField, match="queueId"):
        _ = header.queue_id


@pytest.mark.parametrize(("name", "bits"), [("level", 16), ("queueId", 32), ("beginOffset", 64)])
def test_an_integer_has_the_width_of_its_type(name, bits):
    fields = {"level": "level", "queueId": "queue_id", "beginOffset": "begin_offset"}
    for edge in (2 ** (bits - 1) - 1, -(2 ** (bits - 1))):
        assert getattr(Sample.from_ext({name: str(edge)}), fields[name]) == edge
    for beyond in (2 ** (bits - 1), -(2 ** (bits - 1)) - 1):
        header = Sample.from_ext({name: str(beyond)})
        if name == "level":
            assert header.level is None
        else:
            with pytest.raises(MissingField, match=name):
                getattr(header, fields[name])


@pytest.mark.parametrize("text", ["true", "TRUE", "True", "tRuE"])
def test_true_in_any_case_is_true(text):
    assert Sample.from_ext({"isForce": text}).is_force is True


@pytest.mark.parametrize("text", ["false", "1", "", "yes", " true", "true ", "null", "tru", "ťrue"])
def test_everything_else_is_false(text):
    assert Sample.from_ext({"isForce": text, "order": text}).is_force is False
    assert Sample.from_ext({"isForce": text, "order": text}).order is False


def test_booleans_are_written_as_java_does():
    ext = Sample(1, "t", True, 2, "c", order=False).to_ext()
    assert (ext["isForce"], ext["unitMode"], ext["order"]) == ("true", "false", "false")
