"""Opening what a crash left behind, twice, and comparing it with what was acknowledged."""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

from tests.crash.ledger import Found, Ledger, Lost
from tests.crash.workload import Clock, UnsyncedDisk

from pyromq.store import MessageStore
from pyromq.store.check.store_check import Severity, check_store
from pyromq.testing.power import abandon

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from pyromq.store import StoreConfig


def verify(
    config: StoreConfig, ledger: Ledger, copy: Path, random: Random, clock: float, *, power_lost: bool = False
) -> Found:
    """Recover a copy of the store, read it, close or crash it, and do it all again: nothing may change.

    The store itself stays as the crash left it.
    """
    shutil.copytree(config.root, copy)
    config = dataclasses.replace(config, root=str(copy))
    found = None
    for _ in range(2):
        store = MessageStore(config, disk=UnsyncedDisk(), clock=Clock(clock))
        store.open()
        try:
            again = ledger.verify(store, random, power_lost=power_lost)
        finally:
            is_clean = random.random() < 0.7
            if is_clean:
                store.close()
            else:
                abandon(store)
        if found is not None and found != again:
            raise Lost(f"opening it again changed the store from {found[:2]} to {again[:2]}")
        found = again
        # After a crash the next start has something to do, and the check says so.
        tolerable = {Severity.NOTE} if is_clean else {Severity.NOTE, Severity.WARNING}
        findings = [str(found) for found in check_store(copy, config) if found.severity not in tolerable]
        if findings:
            raise Lost("check: " + "; ".join(findings))
    shutil.rmtree(copy)
    assert found is not None
    return found
