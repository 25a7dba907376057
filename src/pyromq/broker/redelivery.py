"""Redelivery: messages that the broker itself stores again, retried until each one is stored."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pyromq.store import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyromq.protocol.record import MessageRecord
    from pyromq.store import MessageStore, PutResult

    from .appends import Appends

logger = logging.getLogger(__name__)

# The store's status for a message that is too long: maxMessageSize was lowered since it was sent.
_TOO_LONG = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class Handover:
    """Some messages on their way into the store.

    `stored` is called for each stored message. `finished` is called once, when all are stored or, since no store could
    take them, given up; until then, call `put` again whenever nothing is `waiting`.
    """

    def __init__(
        self,
        store: MessageStore,
        appends: Appends,
        records: Sequence[MessageRecord],
        stored: Callable[[MessageRecord, PutResult], None],
        finished: Callable[[], None],
    ) -> None:
        self._store = store
        self._appends = appends
        self._left = dict(enumerate(records))
        self._tell_stored = stored
        self._tell_finished = finished
        self._is_told = False
        self.waiting = 0

    def put(self) -> None:
        """Hand over what is not stored yet; by the end of this turn it is stored, or must be tried again."""
        self.waiting = len(self._left)
        for number, record in self._left.items():
            queue = self._store.queue(record.topic, record.queue_id)
            self._appends.put(queue, (record,), partial(self._stored, number), wait=False)
        if not self._left:
            self._tell_finished()

    def _stored(self, number: int, results: Sequence[PutResult]) -> None:
        result, record = results[0], self._left[number]
        if result.status in _TOO_LONG:
            # It was taken once, so it is taken again.
            result = self._appends.put_again(self._store.queue(record.topic, record.queue_id), record)
            if result.status in _TOO_LONG:
                # The messages after it must not wait for ever. It stays where it is, readable by its id.
                place = (record.physical_offset, record.topic)
                logger.error("skipping the message at %s: cannot put it into %s: %s", *place, result.error)
                del self._left[number]
        if result.status is PutStatus.PUT_OK:
            del self._left[number]
            self._tell_stored(record, result)
        elif number in self._left and not self._is_told:
            self._is_told = True
            logger.warning("%s: message not delivered: %s; trying again", record.topic, result.error)
        self.waiting -= 1
        if not self._left and not self.waiting:
            self._tell_finished()
