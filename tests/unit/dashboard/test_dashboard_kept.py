"""History, jobs, audit and users, in a real database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyromq.dashboard.access.roles import Role, Visitor
from pyromq.dashboard.access.sessions import IDLE, Sessions, Tries
from pyromq.dashboard.access.users import Users, normal_role
from pyromq.dashboard.kept.audit import Audit
from pyromq.dashboard.kept.database import Database
from pyromq.dashboard.kept.history import COARSE_KEPT, FINE_KEPT, History
from pyromq.dashboard.kept.jobs import Jobs, RowResult, State
from pyromq.errors import ConfigError, TooManyRequests
from pyromq.testing import Clock


@pytest.fixture
def database():
    made = Database()
    yield made
    made.close()


BEGAN = 1_700_000_000


async def test_a_number_keeps_its_value_until_it_changes(database):
    history = History(database)
    for second, lag in ((0, 5.0), (10, 5.0), (20, 7.0), (30, 7.0), (40, None)):
        await history.add("c", BEGAN + second, {"lag": lag, "in": 1.0})
    chart = await history.chart("c", ["lag", "nothing"], BEGAN, BEGAN + 60)
    assert [at - BEGAN for at in chart.times] == [0, 10, 20, 30, 40]
    assert chart.lines[0].values == (5.0, 5.0, 7.0, 7.0, None)
    assert chart.lines[1].values == (None,) * 5
    rows = await database.run(lambda db: db.execute("SELECT count(*) FROM fine").fetchone()[0])
    assert rows == 5 + 3 + 1  # a row for each look, and one for each change


async def test_a_time_when_nobody_looked_is_a_gap(database):
    history = History(database)
    for second in (0, 10, 20, 300, 310):
        await history.add("c", BEGAN + second, {"lag": 5.0})
    chart = await history.chart("c", ["lag"], BEGAN, BEGAN + 400)
    assert chart.lines[0].values == (5.0, 5.0, 5.0, None, 5.0, 5.0)


async def test_a_series_that_vanishes_ends(database):
    history = History(database)
    await history.add("c", BEGAN, {"group/a/lag": 5.0, "group/b/lag": 1.0})
    await history.add("c", BEGAN + 10, {"group/b/lag": 1.0})
    await history.add("other", BEGAN + 10, {"group/a/lag": 9.0})
    chart = await history.chart("c", ["group/a/lag", "group/b/lag"], BEGAN, BEGAN + 20)
    assert [line.values for line in chart.lines] == [(5.0, None), (1.0, 1.0)]


async def test_old_samples_go_and_the_value_at_the_edge_stays(database):
    history = History(database)
    await history.add("c", BEGAN, {"lag": 5.0})
    later = BEGAN + FINE_KEPT + 1200
    await history.add("c", later, {"lag": 5.0})
    chart = await history.chart("c", ["lag"], later - 10, later)
    assert chart.lines[0].values == (5.0,)
    assert len((await history.chart("c", ["lag"], BEGAN, later)).times) == 3  # by the minute, with a gap
    for step in (1, 2):
        await history.add("c", BEGAN + COARSE_KEPT * step * 2, {})
    rows = await database.run(lambda db: db.execute("SELECT count(*) FROM coarse").fetchone()[0])
    assert rows <= 2
    assert await database.run(lambda db: db.execute("SELECT count(*) FROM series").fetchone()[0]) <= 2


async def ended(jobs, job):
    """The job, when everything about it is saved."""
    while jobs.is_running(job.id):  # noqa: ASYNC110 - others do not hear of its end
        await asyncio.sleep(0.001)
    return await jobs.get(job.id)


async def test_a_job_counts_and_keeps_a_result_for_each_row(database):
    jobs: Any = Jobs(database)

    async def work(number):
        yield RowResult("a", "fine")
        yield RowResult("b", "broken", failed=True)

    job = await jobs.start("redrive", "what", work, user="u", cluster="c", total=2)
    found = await ended(jobs, job)
    assert (found.state, found.done, found.failed, found.share) == (State.DONE, 2, 1, 1.0)
    assert [row.name for row in await jobs.rows(job.id)] == ["a", "b"]
    assert [row.name for row in await jobs.rows(job.id, failed_only=True)] == ["b"]


async def test_a_job_that_breaks_or_is_cut_off_says_so(database):
    jobs: Any = Jobs(database)

    async def breaks(number):
        yield RowResult("a", "fine")
        raise ValueError("surprise")

    async def waits(number):
        await asyncio.Event().wait()
        yield RowResult("never", "")

    broken = await jobs.start("x", "x", breaks, user="u", cluster="c")
    found = await ended(jobs, broken)
    assert (found.state, found.error) == (State.FAILED, "ValueError: surprise")
    running = [await jobs.start("x", "x", waits, user="u", cluster="c") for _ in range(8)]
    with pytest.raises(TooManyRequests):
        await jobs.start("x", "x", waits, user="u", cluster="c")
    await jobs.close()
    assert (await jobs.get(running[0].id)).state is State.STOPPED
    database.run_now(lambda db: db.execute("UPDATE jobs SET state = 'running'"))
    jobs = Jobs(database)
    assert (await jobs.get(running[0].id)).state is State.INTERRUPTED


async def test_the_audit_is_searched_and_paged(database):
    audit = Audit(database)
    for number in range(5):
        await audit.add(Visitor("eve", Role.ADMIN, "::1"), "delete topic", f"t{number}", "done", cluster="prod")
    await audit.add(Visitor("bob", Role.VIEWER, "::1"), "request", "POST /topics", "refused")
    assert [entry.target for entry in await audit.entries(text="EVE", limit=2)] == ["t4", "t3"]
    third = (await audit.entries(text="eve", limit=3))[-1]
    assert [entry.target for entry in await audit.entries(text="eve", before=third.id)] == ["t1", "t0"]
    assert [entry.user for entry in await audit.entries(text="refused")] == ["bob"]


async def test_a_password_is_checked_and_never_kept(database):
    users: Any = Users(database)
    password = users.first_start()
    assert users.first_start() is None
    found = await users.check("admin", password)
    assert (found.role, found.one_time) == (Role.ADMIN, True)
    assert await users.check("admin", password + "x") is None
    assert await users.check("nobody", password) is None
    kept = await database.run(lambda db: repr(db.execute("SELECT * FROM users").fetchall()))
    assert password not in kept
    for name, bad in (("eve", "short"), ("", "long enough"), ("eve", "x" * 300), ("a\nb", "long enough")):
        with pytest.raises(ConfigError):
            await users.put(name, bad, Role.VIEWER)
    with pytest.raises(ConfigError, match="stay an admin"):
        await users.delete("admin")


async def test_users_of_rocketmqs_dashboard_are_taken_over(database, tmp_path):
    file = tmp_path / "users.properties"
    file.write_text("# comment\nboss=s3cret,x,1\nreader=only-looks\n\nodd line\n")
    roles = tmp_path / "role-permission.yml"
    roles.write_text("rolePerms:\n  normal:\n    - /rocketmq/nsaddr\n    - /topic/*.query\n")
    users: Any = Users(database)
    assert users.migrate(file, roles) == ["boss", "reader"]
    assert users.migrate(file, roles) == []
    assert (await users.check("boss", "s3cret,x")).role is Role.ADMIN
    assert (await users.check("reader", "only-looks")).role is Role.OPERATOR  # a * includes pages that change
    assert normal_role({"rolePerms": {"normal": ["/topic/list.query"]}}) is Role.VIEWER
    assert normal_role("nonsense") is Role.VIEWER
    with pytest.raises(ConfigError):
        users.migrate(tmp_path / "none")


def test_sessions_end_when_nobody_uses_them():
    clock = Clock()
    sessions: Any = Sessions(clock)
    number = sessions.begin("eve", Role.ADMIN)
    assert sessions.is_token(number, sessions.token(number))
    assert not sessions.is_token(sessions.begin("eve", Role.ADMIN), sessions.token(number))
    clock.advance(IDLE - 1)
    assert sessions.get(number).user == "eve"
    clock.advance(IDLE + 1)
    assert sessions.get(number) is None
    other = sessions.begin("eve", Role.ADMIN)
    sessions.end_all("eve")
    assert sessions.get(other) is None


def test_tries_from_one_address_do_not_lock_others_out():
    clock = Clock()
    tries = Tries(clock)
    for _ in range(7):
        tries.failed("evil", "admin")
    assert tries.wait("evil", "admin") == pytest.approx(30, abs=1)
    assert tries.wait("evil", "somebody") > 0
    assert tries.wait("good", "admin") == 0
    clock.advance(31)
    assert tries.wait("evil", "admin") == 0
    tries.succeeded("evil", "admin")
    tries.failed("evil", "admin")
    assert tries.wait("evil", "admin") == 0


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot keep its data"):
        Database(tmp_path / "file")
