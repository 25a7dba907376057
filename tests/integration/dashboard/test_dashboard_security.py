"""Who gets in, who may do what, and what others may make a browser do."""

from __future__ import annotations

import asyncio
import base64

import aiohttp
import pytest
from tests.integration.dashboard.dashboard_kit import Browser, running_dashboard, scene
from yarl import URL

from pyromq.client import Client
from pyromq.dashboard.access.roles import Role
from pyromq.dashboard.access.sessions import Tries
from pyromq.dashboard.config import DashboardConfig, normal_base_path
from pyromq.dashboard.site import Source
from pyromq.errors import ConfigError
from pyromq.testing import Clock, Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
async def stage(tmp_path):
    async with scene(tmp_path) as stage:
        yield stage


@pytest.fixture
async def guarded(tmp_path):
    async with scene(tmp_path, login=True) as stage:
        for role in Role:
            await stage.site.users.put(role.word, f"{role.word}-secret", role)
        yield stage


async def audit(stage):
    return [(entry.user, entry.action, entry.target, entry.outcome) for entry in await stage.site.audit.entries()]


# Forms


async def test_a_form_without_the_token_of_its_session_changes_nothing(stage):
    await stage.browser.get("/")
    for token in ("", "0" * 64):
        page = await stage.browser.post("/topics", {"topic": "planted", "queues": "1"}, csrf=token)
        assert page.status == 403
    assert "planted" not in await stage.admin.topics.names()
    assert ("anybody", "request", "POST /topics", "refused") in await audit(stage)
    assert (await stage.browser.post("/topics", {"topic": "wanted", "queues": "1"})).status == 303
    assert "wanted" in await stage.admin.topics.names()


async def test_a_token_of_another_session_is_worth_nothing(stage):
    token = await stage.browser.token()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        other = Browser(stage.browser.url, http)
        await other.get("/")
        assert (await other.post("/topics", {"topic": "planted"}, csrf=token)).status == 403


async def test_a_change_that_another_site_asks_for_is_refused(stage):
    token = await stage.browser.token()
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        page = await stage.browser.post("/topics", {"topic": "planted"}, csrf=token, **headers)
        assert page.status == 403, headers
    host = stage.browser.url.removeprefix("http://")
    page = await stage.browser.post("/topics", {"topic": "ours", "queues": "1"}, csrf=token, Origin=f"http://{host}")
    assert page.status == 303


async def test_the_api_takes_changes_as_json_only(stage):
    async with aiohttp.ClientSession() as http:
        url = f"{stage.browser.url}/api/v1/topics"
        async with http.post(url, data='{"topic": "planted"}', headers={"Content-Type": "text/plain"}) as answer:
            assert answer.status == 415
        async with http.post(url, json={"topic": "planted"}, headers={"Origin": "http://evil.example"}) as answer:
            assert answer.status == 403
        async with http.post(url, json={"topic": "ours", "queues": 1}) as answer:
            assert answer.status == 200
    assert {"planted", "ours"} & {*await stage.admin.topics.names()} == {"ours"}


async def test_a_name_that_points_here_from_elsewhere_is_not_answered(stage):
    """DNS rebinding: without a login, a page of another site could read everything under its own name."""
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert (await stage.browser.get("/", Host=host)).status in (400, 421), host
    assert (await stage.browser.get("/", Host="localhost:8082")).status == 200
    async with running_dashboard(stage.cluster.namesrv, hosts=("mq.example",)) as (_, browser):
        assert (await browser.get("/", Host="mq.example")).status == 200


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_request_without_end_is_cut(stage):
    token = await stage.browser.token()

    async def endless():
        for _ in range(12):
            yield b"body=" + b"x" * (1 << 20)

    form = {"Content-Type": "application/x-www-form-urlencoded", "X-CSRF-Token": token}
    try:
        async with stage.browser.http.post(f"{stage.browser.url}/topics", data=endless(), headers=form) as answer:
            assert answer.status in (400, 413)
    except aiohttp.ClientError:
        pass  # it is cut off while it still sends
    page = await stage.browser.post("/topics", {"topic": "x" * (9 << 20)}, csrf=token)
    assert page.status == 413
    assert (await stage.browser.get("/")).status == 200


async def test_a_form_whose_page_would_have_to_read_too_much_is_refused_once(stage):
    """With the token in a header, the page is the first to read the form."""
    token = await stage.browser.token()
    number = next(cookie.value for cookie in stage.browser.http.cookie_jar if cookie.key == "pyromq_session")
    host, port = stage.browser.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [
        "POST /topics HTTP/1.1",
        f"Host: {host}:{port}",
        f"Cookie: pyromq_session={number}",
        f"X-CSRF-Token: {token}",
        "Content-Type: application/x-www-form-urlencoded",
        f"Content-Length: {9 << 20}",
        "Connection: close",
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    async with asyncio.timeout(10):
        status = await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert status.startswith(b"HTTP/1.1 413 ")


# Login


async def test_nothing_but_the_login_is_shown_before_it(guarded):
    for path in ("/", "/topics", "/messages/export?q=topic:x", "/events", "/topics/x/tail/events", "/jobs/1"):
        page = await guarded.browser.get(path)
        assert page.status == 303, path
        assert page.headers["Location"].startswith("/login")
    assert (await guarded.browser.get("/api/v1/topics")).status == 401
    assert (await guarded.browser.post("/topics", {"topic": "planted"}, csrf="")).status in (401, 403)
    assert (await guarded.browser.get("/login")).status == 200
    assert (await guarded.browser.get("/static/x/style.css")).status == 200


async def test_a_login_begins_a_new_session_and_a_logout_ends_it(guarded):
    await guarded.browser.get("/login")
    before = {cookie.key: cookie.value for cookie in guarded.browser.http.cookie_jar}
    page = await guarded.browser.login("admin", "admin-secret")
    assert page.status == 303
    cookie = page.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    after = {cookie.key: cookie.value for cookie in guarded.browser.http.cookie_jar}
    assert before["pyromq_session"] != after["pyromq_session"]
    assert (await guarded.browser.get("/topics")).status == 200
    assert (await guarded.browser.post("/logout")).status == 303
    guarded.browser.http.cookie_jar.update_cookies(after, URL(guarded.browser.url))
    assert (await guarded.browser.get("/topics")).status == 303


async def test_a_stream_ends_with_the_session_that_began_it(guarded):
    await guarded.admin.topics.create("orders", read_queues=1, write_queues=1)
    await guarded.browser.login("viewer", "viewer-secret")
    url = f"{guarded.browser.url}/topics/orders/tail/events"
    async with (
        guarded.browser.http.get(url) as tail,
        guarded.browser.http.get(f"{guarded.browser.url}/events") as events,
    ):
        guarded.site.sessions.end_all("viewer")
        await guarded.send("orders", b"not for them any more", b"nor this")
        async with asyncio.timeout(10):
            left = await tail.read()
            await events.read()
        assert b"nor this" not in left


async def test_a_session_number_that_was_planted_is_not_taken(guarded):
    planted = "x" * 43
    guarded.browser.http.cookie_jar.update_cookies({"pyromq_session": planted}, URL(guarded.browser.url))
    assert (await guarded.browser.login("admin", "admin-secret")).status == 303
    assert guarded.site.sessions.get(planted) is None


@pytest.mark.scenario("admin 32")
async def test_after_six_wrong_passwords_one_has_to_wait(guarded):
    clock = Clock()
    guarded.site.tries = Tries(clock)
    for _ in range(6):
        assert (await guarded.browser.login("admin", "wrong")).status == 401
    page = await guarded.browser.login("admin", "admin-secret")
    assert page.status == 429
    assert "Wait 15 seconds" in page.said or "Wait 16 seconds" in page.said
    assert ("admin", "log in", "admin", "refused") in await audit(guarded)
    clock.advance(16)
    assert (await guarded.browser.login("admin", "admin-secret")).status == 303


@pytest.mark.scenario("admin 31")
async def test_a_viewer_looks_and_changes_nothing(guarded):
    await guarded.send("orders", b"x")
    await guarded.looked()
    await guarded.browser.login("viewer", "viewer-secret")
    page = await guarded.browser.get("/topics/orders")
    assert page.status == 200
    assert "Publish" not in page.said
    assert (await guarded.browser.get("/topics/orders/publish")).status == 403
    for path, fields in (
        ("/topics", {"topic": "planted"}),
        ("/topics/orders/publish", {"body": "y"}),
        ("/topics/orders/delete", {"name": "orders"}),
    ):
        assert (await guarded.browser.post(path, fields)).status == 403, path
    status, _ = await guarded.browser.json("/api/v1/topics", {"topic": "planted"})
    assert status == 403
    entries = await audit(guarded)
    assert ("viewer", "request", "POST /topics", "refused") in entries
    assert ("viewer", "request", "POST /api/v1/topics", "refused") in entries
    assert "planted" not in await guarded.admin.topics.names()


async def test_an_operator_sends_but_does_not_delete(guarded):
    await guarded.send("orders", b"x")
    await guarded.looked()
    await guarded.browser.login("operator", "operator-secret")
    assert (await guarded.browser.post("/topics/orders/publish", {"body": "y"})).status == 200
    assert (await guarded.browser.post("/topics/orders/delete", {"name": "orders"})).status == 403
    assert (await guarded.browser.post("/brokers/broker-a/0/config", {"key": "a", "value": "b"})).status == 403
    assert (await guarded.browser.post("/security/users", {"name": "me", "role": "admin"})).status == 403


async def test_a_one_time_password_has_to_be_changed_first(guarded):
    await guarded.site.users.put("new", "one-time-pw", Role.VIEWER, one_time=True)
    page = await guarded.browser.login("new", "one-time-pw")
    assert page.headers["Location"] == "/account/password"
    assert (await guarded.browser.get("/topics")).headers["Location"] == "/account/password"
    assert (await guarded.browser.get("/api/v1/topics")).status == 403
    token = (await guarded.browser.get("/account/password")).csrf()
    wrong = await guarded.browser.post(
        "/account/password", {"old": "no", "new": "longer-one", "again": "longer-one"}, csrf=token
    )
    assert wrong.status == 400
    fields = {"old": "one-time-pw", "new": "longer-one", "again": "longer-one"}
    assert (await guarded.browser.post("/account/password", fields, csrf=token)).status == 303
    assert (await guarded.browser.get("/topics")).status == 200


async def test_an_admin_manages_users_and_the_last_admin_stays(guarded):
    await guarded.browser.login("admin", "admin-secret")
    assert (await guarded.browser.post("/security/users", {"name": "eve", "role": "operator"})).status == 303
    page = await guarded.browser.get("/security")
    assert "eve" in page.said
    assert "one-time password is" in page.said
    assert (await guarded.browser.post("/security/users/eve", {"role": "viewer"})).status == 303
    assert (await guarded.site.users.get("eve")).role is Role.VIEWER
    assert (await guarded.browser.post("/security/users/eve", {"do": "delete"})).status == 303
    assert (await guarded.browser.post("/security/users/admin", {"role": "viewer"})).status == 400
    assert (await guarded.browser.post("/security/users/admin", {"do": "delete"})).status == 400


async def test_the_api_takes_a_name_and_a_password(guarded):
    async def ask(name, password, **more):
        keys = base64.b64encode(f"{name}:{password}".encode()).decode()
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                more.pop("method", "GET"),
                f"{guarded.browser.url}/api/v1/topics",
                headers={"Authorization": f"Basic {keys}"},
                **more,
            ) as answer,
        ):
            return answer.status

    assert await ask("viewer", "viewer-secret") == 200
    assert await ask("viewer", "wrong") == 401
    assert await ask("viewer", "viewer-secret", method="POST", json={"topic": "t"}) == 403
    assert await ask("operator", "operator-secret", method="POST", json={"topic": "t"}) == 200


async def test_after_the_login_nobody_is_led_to_another_site(guarded):
    for back in ("//evil.example/", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/topics"):
        token = (await guarded.browser.get("/login")).csrf()
        fields = {"name": "admin", "password": "admin-secret", "back": back}
        page = await guarded.browser.post("/login", fields, csrf=token)
        assert page.headers["Location"] == ("/topics" if back == "/topics" else "/"), back
        await guarded.browser.post("/logout")


# Addresses


@pytest.mark.scenario("admin 33")
async def test_below_a_base_path_every_link_stays_below_it(stage):
    await stage.send("orders", b"x")
    async with running_dashboard(stage.cluster.namesrv, base_path="/mq") as (server, browser):
        await server.site.default.sampler.look()
        from tests.integration.dashboard.test_dashboard_pages import links

        for path in (
            "/",
            "/topics",
            "/topics/orders",
            "/topics/orders/tail",
            "/groups",
            "/messages",
            "/dlq",
            "/brokers",
            "/ops",
            "/login",
        ):
            page = await browser.get(path)
            if page.status == 303:
                assert page.headers["Location"].startswith("/mq/")
                continue
            assert page.status == 200, path
            for link in links(page):
                assert link == "" or link.startswith("/mq/"), (path, link)
        created = await browser.post("/topics", {"topic": "t1", "queues": "1"})
        assert created.headers["Location"] == "/mq/topics/t1"
        assert "Path=/mq" in (await browser.get("/")).headers.get("Set-Cookie", "Path=/mq")
        root = browser.url.removesuffix("/mq")
        for path in (
            "/",
            "/topics",
            "/mqx/topics",
            "/mq/../topics",
            "/mq/..%2ftopics",
            "//mq/topics",
            "/MQ/topics",
            "/mq%2Ftopics/..",
            "/mq/%2e%2e/topics",
        ):
            answer = await Browser(root, browser.http).get(path)
            assert answer.status == 404, path
        assert (await Browser(root, browser.http).get("/mq")).headers["Location"] == "/mq/"


def test_a_base_path_is_made_of_plain_names():
    assert normal_base_path("mq/dash/") == "/mq/dash"
    assert normal_base_path("/") == ""
    for text in ("/a b", "/..", "/a/../b", "/a?b", "/a%2f", "/a\nb", "/é"):
        with pytest.raises(ConfigError):
            normal_base_path(text)


async def test_files_outside_of_the_static_ones_cannot_be_reached(stage):
    for path in (
        "/static/x/../../config.py",
        "/static/x/..%2f..%2fconfig.py",
        "/static//etc/passwd",
        "/static/x/%2e%2e/%2e%2e/__init__.py",
        "/static/x/vendor/manifest.json",
    ):
        assert (await stage.browser.get(path)).status == 404, path
    page = await stage.browser.get("/static/old/style.css")
    assert page.status == 200
    assert page.headers["Cache-Control"] == "no-cache"


async def test_secrets_in_settings_never_reach_a_browser(tmp_path):
    secret = "not-for-your-eyes"
    async with scene(
        tmp_path, f'innerClientAuthenticationCredentials={{"accessKey":"inner-key","secretKey":"{secret}"}}'
    ) as stage:
        for path in ("/brokers/broker-a/0/config", "/brokers/broker-a/0", "/security", "/ops", "/api/v1/brokers"):
            page = await stage.browser.get(path)
            assert page.status == 200
            assert secret not in page.text, path
        page = await stage.browser.post(
            "/brokers/broker-a/0/config", {"key": "innerClientAuthenticationCredentials", "value": "••••••"}
        )
        assert page.status == 400


@pytest.mark.scenario("admin 48")
def test_other_machines_are_not_served_without_a_login():
    with pytest.raises(ConfigError, match=r"--login.*--insecure"):
        DashboardConfig(host="0.0.0.0").check()
    DashboardConfig(host="0.0.0.0", login=True).check()
    DashboardConfig(host="0.0.0.0", insecure=True).check()
    DashboardConfig(host="::1").check()


async def test_several_clusters_have_pages_of_their_own(stage, tmp_path):
    async with Cluster(tmp_path / "second") as second:
        sources = [Source("second", (second.namesrv,), Client)]
        async with running_dashboard(stage.cluster.namesrv, sources=sources) as (server, browser):
            await browser.post("/c/second/topics", {"topic": "only-there", "queues": "1"})
            await asyncio.gather(*(cluster.sampler.look() for cluster in server.site.clusters.values()))
            assert "only-there" in (await browser.get("/c/second/topics")).said
            assert 'href="/c/second/topics/only-there"' in (await browser.get("/c/second/topics")).text
            assert "only-there" not in (await browser.get("/topics")).said
            assert (await browser.get("/c/nobody/topics")).status == 404
