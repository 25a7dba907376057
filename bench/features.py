"""What a message can do besides being stored: filtered by SQL92, transactional, delayed; ours next to Apache 5.5.0.

Every figure is taken from both brokers in turn, in the same run. About seven minutes with the default rounds.
"""

from __future__ import annotations

from . import features_delays, features_pending, features_sql, features_transactions
from .broker_peers import APACHE, OURS, brokers


def main(seconds: float) -> None:
    with brokers(OURS, APACHE) as peers:
        features_sql.run(peers, seconds)
        features_transactions.run(peers, seconds)
        features_delays.run(peers, seconds)
    with brokers(OURS, APACHE) as peers:
        features_pending.run(peers, seconds)
