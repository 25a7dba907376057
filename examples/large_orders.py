"""A function for a pipeline (shop_lake.yaml): orders of many pieces, with what they cost."""

from __future__ import annotations

import json
from typing import Any


def large(message: dict[str, Any]) -> dict[str, Any] | None:
    """What to send for a message: nothing for a small order. What raises becomes a dead letter."""
    order = json.loads(message["body"])
    if order["amount"] < 3:
        return None
    order["total"] = round(order["amount"] * order["price"], 2)
    return {"body": json.dumps(order), "keys": order["id"], "tags": order["product"]}
