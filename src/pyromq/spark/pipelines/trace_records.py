"""Trace messages as tables: one row per record, whichever client wrote it (the format: `pyromq/client/trace.py`).

    Pub        time, region, group, topic, id, tags, keys, broker, length, cost, type, [offset id,] success, [client]
    SubBefore  time, region, group, request id, id, retries, keys, [client]
    SubAfter   request id, id, cost, success, keys, how it ended, [time, group]

Done with Spark's own functions, so that nothing crosses into Python. A record without all its fields, with a number
that is none, or without its end is torn: its writer died or its message was cut. Torn ones are counted, never fatal;
types that are not listed are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_RECORD_END, _FIELD = "\x02", "\x01"
# The fewest fields that clients have ever written, with the type.
_LEAST = {"Pub": 13, "SubBefore": 8, "SubAfter": 6}
_OTHERS = ("EndTransaction", "Recall")


def records(messages: DataFrame) -> DataFrame:
    """`kind`, `fields` and `isTorn` of each record in the bodies of trace messages."""
    from pyspark.sql import functions as F

    parts = F.split(F.decode("body", "UTF-8"), _RECORD_END)
    pieces = messages.select(F.posexplode(parts).alias("at", "text"), F.size(parts).alias("count"))
    # After the last end there is nothing, or a record that was cut.
    pieces = pieces.where(F.col("text") != "").withColumn("isCut", F.col("at") == F.col("count") - 1)
    fields = F.split("text", _FIELD)
    split = pieces.select("isCut", F.element_at(fields, 1).alias("kind"), fields.alias("fields"))
    least = F.coalesce(*(F.when(F.col("kind") == kind, F.lit(few)) for kind, few in _LEAST.items()))
    is_known = F.col("kind").isin(*_LEAST)
    numbers = {"Pub": (2, 11), "SubBefore": (2, 7), "SubAfter": (4,)}
    are_numbers = F.coalesce(
        *(
            F.when(F.col("kind") == kind, _all([_number(place).isNotNull() for place in places]))
            for kind, places in numbers.items()
        ),
        F.lit(True),
    )
    torn = F.col("isCut") | (is_known & ((F.size("fields") < least) | ~are_numbers))
    # A piece of anything else is torn, too, unless it is one of the types that say nothing about times.
    torn = torn | (~is_known & ~F.col("kind").isin(*_OTHERS))
    return split.select("kind", "fields", torn.alias("isTorn"))


def pubs(whole: DataFrame) -> DataFrame:
    """`id`, `topic`, `group`, `sent` and `cost` (ms) of every send, and whether it succeeded."""
    from pyspark.sql import functions as F

    found = whole.where(F.col("kind") == "Pub").select(
        _field(6).alias("id"), _field(5).alias("topic"), _field(4).alias("group"), _number(2).alias("sent"),
        _number(11).alias("cost"), _success().alias("isOk"),
    )  # fmt: skip
    return found.distinct()


def deliveries(whole: DataFrame) -> DataFrame:
    """`id`, `group`, `request`, `began`, `retries` of every delivery, with `cost` if its end is known."""
    from pyspark.sql import functions as F

    before = whole.where(F.col("kind") == "SubBefore").select(
        _field(6).alias("id"), _field(4).alias("group"), _field(5).alias("request"), _number(2).alias("began"),
        _number(7).alias("retries"),
    )  # fmt: skip
    after = whole.where(F.col("kind") == "SubAfter").select(
        _field(3).alias("id"), _field(2).alias("request"), _number(4).alias("cost")
    )
    # A trace message may be there twice, after a retry of its sender.
    return before.distinct().join(after.dropDuplicates(["id", "request"]), ["id", "request"], "left")


def _field(place: int) -> Column:
    """A field by its place in the record, where the type is 1; null if it is absent."""
    from pyspark.sql import functions as F

    found = F.get("fields", F.lit(place - 1))
    return F.when(found != "null", found)


def _number(place: int) -> Column:
    return _field(place).try_cast("bigint")


def _success() -> Column:
    """Whether a Pub succeeded. Older clients write no offset id before it, newer ones their address behind it."""
    from pyspark.sql import functions as F

    size = F.size("fields")
    return F.when(size >= 14, _field(14)).otherwise(_field(13)) == "true"


def _all(conditions: list[Column]) -> Column:
    first, *others = conditions
    for each in others:
        first = first & each
    return first
