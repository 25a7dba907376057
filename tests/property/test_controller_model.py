"""A controller's state under random requests, broken disks and restarts: the promises that brokers rely on."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyromq.controller import verdicts
from pyromq.controller.election import Standing
from pyromq.controller.journal import JournalFile
from pyromq.controller.replicas import Event, apply
from pyromq.protocol.bodies import SyncStateSet
from pyromq.protocol.headers import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, ControllerRegisterBroker

NAMES = st.sampled_from(["a", "b"])
IDS = st.integers(-1, 5)


class ControllerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="pyromq-journal-"))
        self.file = JournalFile(self.folder)
        self.groups = self.file.open()
        # (group's life, epoch) -> master; a cleaned group begins a new life
        self.masters: dict[tuple[str, int, int], int] = {}
        self.lives = {"a": 0, "b": 0}
        self.alive: dict[int, Standing] = {}

    def teardown(self) -> None:
        self.file.close()
        shutil.rmtree(self.folder)

    def decide(self, name, verdict):
        if not isinstance(verdict, Event):
            return
        before = self.groups.get(name)
        after = verdict.applied_to(before)
        self.file.append(verdict, after, self.groups)
        assert apply(self.groups, verdict) == after
        if after is None:
            self.lives[name] += 1
            return
        if before is not None:
            assert (after.master_epoch, after.set_epoch) >= (before.master_epoch, before.set_epoch)
            assert after.set_epoch >= before.set_epoch
            assert after.next_id >= before.next_id
            if after.master != before.master and after.master is not None:
                assert after.master_epoch == before.master_epoch + 1
            if after.sync_state_set != before.sync_state_set:
                assert after.set_epoch == before.set_epoch + 1
        if after.master is not None:
            key = (name, self.lives[name], after.master_epoch)
            assert self.masters.setdefault(key, after.master) == after.master

    @initialize(alive=st.sets(st.integers(1, 5)))
    def somebody_lives(self, alive):
        self.alive = {id_: Standing(0, id_) for id_ in alive}

    @rule(broker=st.integers(1, 5), standing=st.builds(Standing, st.integers(0, 3), st.integers(0, 3)))
    def beats(self, broker, standing):
        self.alive[broker] = standing

    @rule(broker=st.integers(1, 5))
    def dies(self, broker):
        self.alive.pop(broker, None)

    @rule(name=NAMES, broker=IDS, code=st.sampled_from(["x:1;1", "y:1;2"]))
    def applies(self, name, broker, code):
        self.decide(name, verdicts.apply_broker_id(self.groups.get(name), ApplyBrokerId(name, broker, code, "c")))

    @rule(name=NAMES)
    def joins(self, name):
        following = verdicts.next_broker_id(self.groups.get(name))
        verdict = verdicts.apply_broker_id(
            self.groups.get(name), ApplyBrokerId(name, following, f"z:1;{following}", "c")
        )
        assert isinstance(verdict, Event)  # the next id is always free
        self.decide(name, verdict)

    @rule(name=NAMES, broker=IDS, address=st.sampled_from(["x:1", "w:2"]))
    def registers(self, name, broker, address):
        request = ControllerRegisterBroker(name, broker, address)
        self.decide(name, verdicts.register_broker(self.groups.get(name), request))

    @rule(name=NAMES, broker=IDS, designate=st.booleans(), unclean=st.booleans())
    def elects(self, name, broker, designate, unclean):
        group = self.groups.get(name)
        verdict = verdicts.elect_master(group, broker, self.alive, designate=designate, unclean=unclean)
        if isinstance(verdict, Event) and group is not None and not unclean and group.master_epoch:
            new = verdict.applied_to(group)
            assert new is not None
            assert new.master is None or new.master in group.sync_state_set
        self.decide(name, verdict)

    @rule(name=NAMES, wanted=st.sets(st.integers(1, 5)), stale=st.integers(0, 1))
    def alters(self, name, wanted, stale):
        group = self.groups.get(name)
        if group is None or group.master is None:
            return
        request = AlterSyncStateSet(name, group.master, group.master_epoch - stale)
        body = SyncStateSet(sync_state_set=sorted(wanted), sync_state_set_epoch=group.set_epoch)
        verdict = verdicts.alter_sync_state_set(group, request, body, self.alive)
        assert not (stale and isinstance(verdict, Event))
        self.decide(name, verdict)

    @rule(name=NAMES, ids=st.sets(st.integers(1, 5)), living=st.booleans())
    def cleans(self, name, ids, living):
        request = CleanBrokerData(name, "c", ";".join(map(str, ids)) or None, living)
        self.decide(name, verdicts.clean_broker_data(self.groups.get(name), request, self.alive.__contains__))

    @rule(torn=st.binary(max_size=60))
    def restarts(self, torn):
        """Also after a crash that left the beginning of a line, which nobody was told of."""
        self.file.close()
        if torn and b"\n" not in torn:
            with (self.folder / "journal").open("ab") as journal:
                journal.write(torn)
        self.file = JournalFile(self.folder)
        assert self.file.open() == self.groups

    @rule()
    def compacts(self):
        self.file._compact(self.groups)

    @invariant()
    def every_set_is_made_of_members_and_has_its_master(self):
        for group in self.groups.values():
            assert group.members
            assert group.sync_state_set <= group.members.keys()
            assert group.master is None or group.master in group.sync_state_set
            assert all(1 <= id_ < group.next_id for id_ in group.members)


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
