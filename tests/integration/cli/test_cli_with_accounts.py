"""Every command that talks to servers, against `pyromq up` with accounts: unsigned, wrongly signed, and signed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.account_kit import SECRET, account, write_accounts
from tests.integration.cli.cli_kit import Ended
from tests.ports import free_port
from tests.unit.cli.test_cli_examples import commands

from pyromq import sync
from pyromq.cli.main import main
from pyromq.client.identity import Credentials

pytestmark = pytest.mark.slow

ADMIN = Credentials("administrator", SECRET)
NOT_AUTHORISED, FOUND_SOMETHING = 4, 6
FINDERS = ("check broker", "doctor")
WHY = re.compile("No accessKey is configured|Check signature failed for accessKey=administrator")

# Those that need no account: name servers answer them for everybody, as RocketMQ's do.
OPEN = {
    "namesrv kv list ORDER_TOPIC_CONFIG": 0,
    "namesrv kv get ORDER_TOPIC_CONFIG nothing": 3,
    "topic route orders": 0,
    "topic assign orders one two": 0,
    "controller list --controller CONTROLLER": 0,
}
# With which code each ends for an administrator. What is not there is not found (3), which nobody else may know.
GUARDED = {
    "broker list": 0,
    "broker status": 0,
    "broker lag": 0,
    "broker ha": 0,
    "broker ping --count 1": 0,
    "broker drain broker-a --yes": 0,
    "broker undrain broker-a --yes": 0,
    "broker config get": 0,
    "broker config set traceOn=true -b broker-a --yes": 0,
    "broker clean queues --yes": 0,
    "broker clean topics --yes": 0,
    "broker clean log --yes": 0,
    "namesrv config get": 0,
    "namesrv config set orderMessageEnable=false --yes": 0,
    "namesrv kv set ORDER_TOPIC_CONFIG later broker-a:4 --yes": 0,
    "namesrv kv delete ORDER_TOPIC_CONFIG made-before --yes": 0,
    "controller status --controller CONTROLLER": 0,
    "controller elect nothing 1 --controller CONTROLLER --yes": 3,
    "controller clean nothing 1 --controller CONTROLLER --yes": 3,
    "controller config get --controller CONTROLLER": 0,
    "controller config set enableElectUncleanMaster=false --controller CONTROLLER --yes": 0,
    "topic list --long": 0,
    "topic describe orders": 0,
    "topic stats orders": 0,
    "topic groups orders": 0,
    "topic create made --yes": 0,
    "topic update orders --write-queues 4 --read-queues 4 --yes": 0,
    "topic perm orders rw --yes": 0,
    "topic delete made-before --yes": 0,
    "topic order orders --set broker-a:4": 0,
    "group list": 0,
    "group lag billing": 0,
    "group clients billing": 3,
    "group inspect billing": 3,
    "group watch billing --looks 1 --every 0.1": 0,
    "group describe billing": 0,
    "group create made --yes": 0,
    "group update billing --retry-max 5 --yes": 0,
    "group delete made-before --yes": 0,
    "group mode billing orders pop --yes": 0,
    "group offsets reset billing -t orders --to-earliest --yes": 0,
    "group offsets skip billing -t orders --yes": 0,
    "group offsets clone billing billing-test --yes": 0,
    "group offsets export billing": 0,
    "message list orders": 0,
    "message tail orders --last 1 --count 1": 0,
    "message get ID": 0,
    "message find orders --key k-1": 0,
    "message count orders": 0,
    "message send orders hello": 0,
    "message consume orders --count 1": 0,
    "message consume orders --group billing --count 1": 0,
    "message direct ID -g billing -t orders --yes": 3,
    "message export orders -f FOLDER/orders.ndjson": 0,
    "message import FOLDER/given.ndjson --yes": 0,
    "dlq list": 0,
    "dlq show billing": 0,
    "dlq redrive billing --to orders --yes": 0,
    "dlq export billing -f FOLDER/dead.ndjson": 0,
    "dlq purge billing --yes": 0,
    "trace get 0A000001": 3,
    "queue dump orders broker-a:0": 0,
    "producer list": 0,
    "producer clients nobody -t orders": 1,
    "user list": 1,
    "user create alice --yes": 1,
    "user update alice --disable --yes": 1,
    "user delete alice --yes": 1,
    "policy list": 1,
    "policy grant alice Topic:orders pub --yes": 1,
    "policy revoke alice Topic:orders --yes": 1,
    "policy delete alice --yes": 1,
    "cluster list --totals": 0,
    "cluster ping --count 1": 0,
    "acl list": 0,
    "acl status": 0,
    "acl set somebody --secret -t orders=PUB --yes": 0,
    "acl delete passing-by --yes": 0,
    "acl allow 10.0.0.7 --yes": 0,
    "check lag billing": 0,
    "check broker": 0,
    "check disk": 0,
    "apply -f FOLDER/shop.yaml --yes": 0,
    "export metadata -f FOLDER/shop.json": 0,
    "export configs -f FOLDER/configs.json": 0,
    "export report": 0,
    "top --once": 0,
    "doctor": 6,  # it looks for the controller at its usual port
    "bench send orders --count 2": 0,
    "bench consume orders --count 2": 0,
}
# They start servers, keep the address for later, or run Spark, which has tests of its own (tests/spark).
ELSEWHERE = {
    *("broker", "namesrv", "dashboard", "exporter", "context add", "pipelines init", "lake headroom", "sql"),
    *(
        f"spark {verb}"
        for verb in ("shell", "run", "doctor", "archive", "replay", "transform", "audit", "lag", "latency")
    ),
}


class Cluster:
    def __init__(self, home):
        self.home = home
        self.namesrv, self.controller = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.message_id = ""

    def line(self, text):
        words = text.replace("CONTROLLER", self.controller).replace("FOLDER", str(self.home)).split()
        return [self.message_id if word == "ID" else word for word in words]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """`pyromq up` with a controller, in which every request must be signed."""
    home = tmp_path_factory.mktemp("up")
    here = Cluster(home)
    write_accounts(home / "data", account("passing-by"), account("orders-reader", topics=["orders=SUB"]))
    (home / "shop.yaml").write_text("topics:\n- {name: applied, queues: 2}\n")
    (home / "given.ndjson").write_text('{"topic": "orders", "body": "imported"}\n')
    command = [
        *(sys.executable, "-m", "pyromq.cli.main", "up", "--data", str(home / "data")),
        *("--namesrv-port", here.namesrv.rpartition(":")[2], "--broker-port", str(free_port())),
        *("aclEnable=true", "enableControllerInNamesrv=true", f"controllerDLegerPeers=n0-{here.controller}"),
        *("traceTopicEnable=true", "knownBrokersOnly=true"),
        f'innerClientAuthenticationCredentials={{"accessKey":"{ADMIN.access_key}","secretKey":"{SECRET}"}}',
    ]
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    log = home / "up.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=kept | {"HOME": str(home)}, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert "is ready" in process.stdout.readline(), log.read_text()
            with (
                sync.Client(here.namesrv, credentials=ADMIN) as client,
                sync.AdminClient(client=client) as admin,
                sync.Producer("makers", client=client) as producer,
            ):
                admin.topics.create("orders", read_queues=4, write_queues=4)
                admin.groups.create("billing")
                admin.topics.create("%DLQ%billing", read_queues=1, write_queues=1)
                producer.send("%DLQ%billing", b"dead")
                for _ in range(4):
                    sent = producer.send("orders", b"hello", keys="k-1")
                    admin.offsets.set("billing", {sent.queue: 0})
                here.message_id = sent.offset_id
                admin.topics.create("made-before")
                admin.groups.create("made-before")
                admin.namesrv.put_kv("ORDER_TOPIC_CONFIG", "made-before", "broker-a:4")
            yield here
            process.send_signal(signal.SIGTERM)
            assert process.wait(TOO_LONG) == 0
        finally:
            process.kill()
    assert SECRET not in log.read_text()


@pytest.fixture
def run(cluster, capsys, monkeypatch):
    monkeypatch.setenv("PYROMQ_NEW_SECRET", "new-s3cret")

    def run(text):
        with pytest.raises(SystemExit) as done:
            main([*cluster.line(text), "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        return Ended(int(done.value.code or 0), out, err)

    return run


def signs(monkeypatch, secret=SECRET):
    monkeypatch.setenv("PYROMQ_ACCESS_KEY", ADMIN.access_key)
    monkeypatch.setenv("PYROMQ_SECRET_KEY", secret)


def test_every_command_that_talks_to_servers_is_here():
    talking = {
        path.removeprefix("pyromq ")
        for path, command in commands()
        if {"-n", "--namesrv"} & {option for parameter in command.params for option in parameter.opts}
    }
    tried = {name for line in (*OPEN, *GUARDED) for name in talking if f"{line} ".startswith(f"{name} ")}
    assert talking - ELSEWHERE == tried - ELSEWHERE


@pytest.mark.parametrize("line", GUARDED)
def test_without_an_account_a_command_says_what_it_lacks(line, run, monkeypatch):
    for secret in (None, "wrong-s3cret"):
        if secret is not None:
            signs(monkeypatch, secret)
        ended = run(line)
        # Some show what they could not find out as one finding of many.
        assert ended.code == (FOUND_SOMETHING if line in FINDERS else NOT_AUTHORISED), ended
        assert WHY.search(ended.out + ended.err), ended
        assert "give credentials with" in ended.out + ended.err, ended
        assert "s3cret" not in ended.out + ended.err


@pytest.mark.parametrize(("line", "code"), [*GUARDED.items(), *OPEN.items()])
def test_with_an_account_a_command_does_its_work(line, code, run, monkeypatch):
    signs(monkeypatch)
    ended = run(line)
    assert ended.code == code, ended
    assert not WHY.search(ended.out + ended.err), ended
    assert SECRET not in ended.out + ended.err


@pytest.mark.parametrize(("line", "code"), OPEN.items())
def test_name_servers_answer_everybody(line, code, run):
    ended = run(line)
    assert ended.code == code, ended
