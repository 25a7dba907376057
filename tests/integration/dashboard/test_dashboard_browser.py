"""The dashboard in a real Chromium, driven by Playwright; skipped where none is installed."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyromq.cli.connecting import Target
from pyromq.cli.servers.dashboard import DashboardThread
from pyromq.client import AdminClient, Consumer, Message, Producer, StartAt
from pyromq.dashboard.config import DashboardConfig
from pyromq.testing import running_cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ROOT = Path(__file__).parents[3]
AXE = ROOT / ".cache" / "axe.min.js"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]

PAGES = [
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/tail",
    "/topics/orders/queues",
    "/topics/orders/groups",
    "/topics/orders/producers",
]
PAGES += [
    "/topics/orders/publish",
    "/topics/orders/config",
    "/groups",
    "/groups/billing",
    "/groups/billing/clients",
    "/groups/billing/config",
]
PAGES += [
    "/groups/billing/offsets?topic=orders&move=earliest",
    "/messages",
    "/messages?q=topic:orders",
    "/dlq",
    "/brokers",
]
PAGES += [
    "/brokers/broker-a/0",
    "/brokers/broker-a/0/config",
    "/producers",
    "/traces",
    "/jobs",
    "/audit",
    "/security",
    "/ops",
    "/lake",
    "/topics/nope",
]


@pytest.fixture(scope="module")
def cluster():
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def url(cluster):
    thread = DashboardThread(DashboardConfig(port=0, sample_every=0.5), Target(cluster.namesrv, "test"))
    thread.start()
    yield thread.url.rstrip("/")
    run(thread.stop())


@pytest.fixture(scope="module")
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page, and everything that it complained about or asked of others."""

    def __init__(self, page, url):
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)

    def _said(self, said):
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def _asked(self, request):
        if not request.url.startswith(self.url):
            self.foreign.append(request.url)

    def open(self, path):
        self.page.goto(self.url + path)
        return self.page

    def check(self):
        assert self.complaints == []
        assert self.foreign == []


@pytest.fixture
def browser(chromium, url):
    opened = []

    def new(**settings):
        context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | settings))
        opened.append(context)
        return Watched(context.new_page(), url)

    yield new
    for context in opened:
        context.close()


def run(work):
    """Run a coroutine in another thread: Playwright has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def until(page, condition, patience=15.0):
    """Wait in Python: a condition in the page would be evaluated, which our pages do not allow."""
    ends = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < ends, "it did not come true"
        page.wait_for_timeout(50)


def send(cluster, *messages):
    async def work():
        async with Producer("test", namesrv=cluster.namesrv) as producer:
            return [await producer.send(message) for message in messages]

    return run(work())


@pytest.fixture(scope="module")
def filled(cluster):
    """A topic with a group that has read half of it."""

    async def work():
        async with AdminClient(cluster.namesrv) as admin:
            await admin.topics.create("orders", read_queues=2, write_queues=2)
            await admin.groups.create("billing")
        async with Producer("test", namesrv=cluster.namesrv) as producer:
            for number in range(20):
                await producer.send(Message("orders", b'{"n": %d}' % number, tags="A", keys=[f"k{number}"]))
        async with Consumer("billing", {"orders": "*"}, namesrv=cluster.namesrv, start_at=StartAt.FIRST) as consumer:
            count = 0
            async for message in consumer:
                message.ack()
                count += 1
                if count == 10:
                    return

    run(work())


@pytest.mark.scenario("admin 17")
def test_pages_complain_about_nothing_and_ask_nobody_else(browser, filled):
    page = browser()
    for path in PAGES[:-1]:
        page.open(path)
        page.page.wait_for_timeout(100)
    page.check()


@pytest.mark.scenario("admin 29")
def test_the_theme_follows_the_system_until_somebody_chooses(browser, filled):
    page = browser(color_scheme="dark")
    shown = page.open("/")

    def background():
        return shown.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = background()
    shown.get_by_role("button", name="Light or dark").click()
    light = background()
    assert light != dark
    shown.reload()
    assert background() == light
    page.check()


@pytest.mark.scenario("admin 30")
def test_everything_can_be_reached_with_the_keyboard(browser, cluster, filled):
    page = browser()
    shown = page.open("/")
    shown.keyboard.press("/")
    shown.keyboard.type("topic:orders")
    shown.keyboard.press("Enter")
    shown.wait_for_selector("table[data-keys] tbody tr")
    second = shown.locator("table[data-keys] tbody tr").nth(1).locator("a").get_attribute("title")
    shown.keyboard.press("j")
    shown.keyboard.press("j")
    assert shown.evaluate("document.activeElement.title") == second
    shown.keyboard.press("Enter")
    shown.wait_for_selector("#open")
    assert second in shown.locator("#open").inner_text()
    shown.keyboard.press("?")
    assert shown.locator("#help").is_visible()
    shown.keyboard.press("Escape")
    shown.keyboard.press("g")
    shown.keyboard.press("t")
    shown.wait_for_url("**/topics")
    shown.keyboard.press("Control+k")
    shown.keyboard.type("billing")
    shown.wait_for_selector("#palette li a:has-text('billing')")
    shown.keyboard.press("Enter")
    shown.wait_for_url("**/groups/billing")
    page.check()


@pytest.mark.scenario("admin 19")
def test_the_tail_shows_a_burst_and_goes_on_after_a_pause(browser, cluster, filled):
    page = browser()
    shown = page.open("/topics/orders/tail")
    shown.wait_for_selector("#tail-state:has-text('live')")
    shown.wait_for_timeout(300)  # the tail has begun to pull
    send(cluster, *(Message("orders", b"burst %d" % number) for number in range(1000)))

    def counted():
        said = shown.locator("#tail-state").inner_text().replace(",", "")
        return sum(int(number) for number in re.findall(r"(\d+) (?:shown|skipped)", said))

    until(shown, lambda: counted() >= 1000)
    assert counted() == 1000
    shown.get_by_role("button", name="Pause").click()
    send(cluster, Message("orders", b"while it was paused"))
    shown.wait_for_timeout(300)
    assert "while it was paused" not in shown.locator("#tail").inner_text()
    shown.get_by_role("button", name="Resume").click()
    shown.wait_for_selector("#tail td:has-text('while it was paused')")
    assert counted() == 1001
    page.check()


@pytest.mark.scenario("admin 34")
def test_no_script_of_a_message_runs(browser, cluster, filled):
    page = browser()
    alarm = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    shown = page.open("/topics/orders/tail")
    shown.wait_for_selector("#tail-state:has-text('live')")
    shown.wait_for_timeout(300)
    [sent] = send(cluster, Message("orders", alarm.encode(), keys=[alarm.replace(" ", "_")], properties={"p": alarm}))
    shown.wait_for_selector("#tail td:has-text('onerror')")
    place = f"/m/orders/broker-a/{sent.queue.queue_id}/{sent.offset}"
    for path in (
        "/topics/orders",
        place,
        f"{place}/again",
        f"/topics/orders?open=orders@{place[10:].replace('/', ':')}",
    ):
        page.open(path)
        assert "run" not in shown.title()
        assert "onerror" in shown.content()
    page.check()


@pytest.mark.scenario("admin 23")
def test_the_lag_graph_moves_without_a_reload(browser, cluster, filled):
    page = browser()
    shown = page.open("/groups/billing")
    shown.wait_for_selector(".chart canvas")
    before = int(shown.locator(".figure .value").first.inner_text().split()[0].replace(",", ""))
    send(cluster, *(Message("orders", b"more") for _ in range(50)))

    def lag():
        return int(shown.locator(".figure .value").first.inner_text().split()[0].replace(",", ""))

    until(shown, lambda: lag() >= before + 50)
    assert "↗" in shown.locator(".figure .value").first.inner_text()
    assert shown.locator(".legend").first.inner_text().split("\n") == ["messages", "seconds behind"]
    page.check()


@pytest.mark.scenario("admin 25")
def test_a_group_is_moved_after_a_preview(browser, cluster, filled):
    async def prepare():
        async with AdminClient(cluster.namesrv) as admin:
            await admin.topics.create("moves", read_queues=1, write_queues=1)
            await admin.groups.create("mover")

    run(prepare())
    send(cluster, *(Message("moves", b"%d" % number) for number in range(5)))
    page = browser()
    shown = page.open("/groups/mover/offsets")
    shown.get_by_label("Topic", exact=True).fill("moves")
    shown.locator("select[name=move]").select_option("offset")
    shown.get_by_label("Time or number").fill("3")
    shown.get_by_role("button", name="Preview").click()
    assert "gives 1 queues their first offset" in shown.locator("#preview").inner_text()
    shown.get_by_role("button", name="Apply").click()
    shown.wait_for_selector(".flash:has-text('is moved')")
    assert "lag 2 in 1 queues" in shown.content()
    page.check()


def test_messages_are_published_from_the_form(browser, cluster, filled):
    page = browser()
    shown = page.open("/topics/orders/publish")
    shown.get_by_label("Body", exact=True).fill("typed by hand")
    shown.get_by_label("Tag").fill("T")
    shown.get_by_placeholder("name").fill("region")
    shown.get_by_placeholder("value").fill("eu")
    shown.get_by_role("button", name="Send").click()
    shown.wait_for_selector("[role=status]:has-text('1 message was sent')")
    shown.locator("[role=status] a").first.click()
    shown.wait_for_selector("pre:has-text('typed by hand')")
    assert "region" in shown.content()
    page.check()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_window(browser, filled, width):
    page = browser(viewport={"width": width, "height": 800})
    for path in PAGES:
        shown = page.open(path)
        assert shown.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, path


@pytest.fixture(scope="session")
def axe():
    if not AXE.exists():
        done = subprocess.run(
            [sys.executable, ROOT / "scripts" / "vendor.py", "--axe"], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("axe-core is not in .cache, and npm cannot fetch it")
    return AXE.read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(browser, filled, axe, scheme):
    page = browser(color_scheme=scheme)
    found: dict[str, list[object]] = {}
    for path in PAGES:
        shown = page.open(path)
        shown.wait_for_timeout(150)
        shown.evaluate(axe)
        violations = shown.evaluate("axe.run({resultTypes: ['violations']}).then((found) => found.violations)")
        for each in violations:
            if each["impact"] in ("serious", "critical"):
                found.setdefault(each["id"], []).append((path, [node["html"][:160] for node in each["nodes"][:2]]))
    assert found == {}


def test_the_pages_speak_chinese(browser, filled):
    page = browser(locale="zh-CN")
    shown = page.open("/")
    assert shown.locator("h1").inner_text() == "概览"
    assert shown.evaluate("document.documentElement.lang") == "zh-CN"
    shown.locator("summary[aria-label='设置']").click()
    shown.get_by_role("link", name="English").click()
    assert shown.locator("h1").inner_text() == "Overview"
    page.check()


def test_a_hidden_page_gives_its_stream_back(browser, url, filled):
    page = browser()
    shown = page.open("/")
    shown.wait_for_timeout(200)
    shown.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    shown.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    began = time.monotonic()
    shown.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    shown.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    shown.wait_for_selector(".fresh .dot:not(.off)")
    assert time.monotonic() - began < 5
    page.check()
