"""Apache RocketMQ's own broker, `mqadmin` and clients, each as a process in a scratch folder.

They ask for heaps of gigabytes by default. Tests need few megabytes and a short life, so these start small and with the
quick compiler only. Name servers of either make are in `peers.py`.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tests.interop import jars
from tests.interop.process import PeerFailed, Process, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BOOT_SECONDS = 60.0
STOP_SECONDS = 60.0
ADMIN_SECONDS = 60.0
CLIENT_SECONDS = 60.0
# One consumer of 5.5.0 in four waits 30 s for a broker of 4.9.7 or 5.5.0, whichever name server it asks: the second of
# its two first heartbeats does not get there, and the broker answers 25 (subscription not latest) until the next one.
CONSUMED_WITHIN = 60.0
CLUSTER = "interop"

NAMESRV_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
CONTROLLER_MAIN = "org.apache.rocketmq.controller.ControllerStartup"
BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
ADMIN_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"

# RocketMQ reaches into the JDK's buffers; since Java 17 each package must be opened by name.
OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.misc", "jdk.internal.ref")
ACCESS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
)
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
SMALL_SERVER = ("-Xms64m", "-Xmx512m", *QUICK)
SMALL_CLIENT = ("-Xms32m", "-Xmx256m", *QUICK)
TLS_CLIENT = ("-Dtls.enable=true",)  # also for a broker, which is the name server's client

# 4.9 does not start without these two files, 5.x brings its own.
LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/logs/server.log</file>
    <encoder><pattern>%d %-5p %t %c{0} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""
# 5.x finds the broker's configuration in the same class path and talks about it on stdout, in hundreds of lines.
SILENT = "<configuration/>"


def java(version: str, home: Path, jvm: Sequence[str]) -> list[str]:
    """The start of a command line that runs a class of `version` with everything it writes under `home`."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for file, text in (("namesrv", LOGBACK), ("broker", LOGBACK), ("tools", SILENT)):
        (conf / f"logback_{file}.xml").write_text(text)
    jar_set = f"apache-{version}" if f"apache-{version}" in jars.SETS else f"client-{version}"
    return [jars.tool("java"), *ACCESS, *jvm, f"-Duser.home={home}", "-cp", jars.class_path(jar_set)]


def silent(home: Path) -> str:
    return f"-Drmq.logback.configurationFile={home / 'conf' / 'logback_tools.xml'}"


def environment(home: Path) -> dict[str, str]:
    """Ours without what would reach into a peer (a name server address, a serialisation), and its home."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ROCKETMQ", "NAMESRV"))}
    return inherited | {"ROCKETMQ_HOME": str(home)}


class Broker:
    """A broker named after its version, on loopback. It boots for seconds: start several, then wait for each."""

    def __init__(
        self,
        version: str,
        home: Path,
        namesrv: str,
        *,
        name: str = "",
        port: int = 0,
        jvm: Sequence[str] = (),
        **settings: object,
    ) -> None:
        self.name = name or f"broker-{version}"
        self.port = port or free_port()
        config = {
            "brokerClusterName": CLUSTER,
            "brokerName": self.name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "namesrvAddr": namesrv,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
            "mappedFileSizeCommitLog": 16 << 20,
            "mappedFileSizeConsumeQueue": 20 * 10_000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
            **settings,
        }
        command = [*java(version, home, (*SMALL_SERVER, *jvm)), BROKER_MAIN, "-c", str(home / "broker.conf")]
        (home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        self.process = Process(self.name, command, log=home / "broker.out", env=environment(home))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_until_booted(self) -> None:
        """After this the broker serves; it has tried to register once."""
        self.process.wait_for("boot success", BOOT_SECONDS)

    def stop(self) -> None:
        """Let it end by itself, so that its files are complete: 4.9.7 takes 7 s, 5.5.0 takes 17, most of it waiting."""
        self.process.terminate()
        self.process.wait(STOP_SECONDS)


class Admin:
    """The `mqadmin` command of one version, told which name server to ask."""

    def __init__(self, version: str, home: Path, namesrv: str) -> None:
        self.version = version
        self._home = home
        self._namesrv = namesrv
        self._started = 0

    def run(self, *command_lines: str) -> list[str]:
        """What each command printed. They run side by side: one takes 3.6 s, of which the JVM sleeps more than two.

        mqadmin ends with 0 even after an exception, so only the text can say whether it worked.
        """
        with contextlib.ExitStack() as running:
            processes = [running.enter_context(self._start(line)) for line in command_lines]
            for process in processes:
                process.wait(ADMIN_SECONDS)
            return [process.output for process in processes]

    def _start(self, command_line: str) -> Process:
        self._started += 1
        command, *arguments = command_line.split()
        start = java(self.version, self._home, (*SMALL_CLIENT, silent(self._home)))
        return Process(
            f"mqadmin {self.version} {command_line}",
            [*start, ADMIN_MAIN, command, "-n", self._namesrv, *arguments],
            log=self._home / f"{self._started}-{command}.out",
            env=environment(self._home),
            cwd=self._home,  # consumerStatus leaves files where it is run
        )


class Client:
    """The official Java client of one version, driven through our small programs in `java/`."""

    def __init__(self, version: str, home: Path, namesrv: str, *, jvm: Sequence[str] = ()) -> None:
        self.version = version
        self._home = home
        self._namesrv = namesrv
        self._jvm = (*SMALL_CLIENT, *jvm)
        self._started = 0

    def produce(self, topic: str, count: int) -> list[tuple[str, str]]:
        """Send `count` messages `<topic>-<n>`; the id and the broker of each."""
        with self._start("Produce", topic, str(count)) as process:
            process.wait(CLIENT_SECONDS)
            sent = [(words[0], words[1]) for words in map(str.split, process.lines("sent"))]
            if len(sent) != count:
                raise PeerFailed(f"client {self.version} sent {len(sent)} of {count} messages:\n{process.tail()}")
            return sent

    def consume(self, topic: str, group: str, count: int, seconds: float = CONSUMED_WITHIN) -> list[str]:
        """The bodies that a fresh consumer of `group` gets until it has `count` of them or `seconds` have passed."""
        with self._start("Consume", topic, group, str(count), str(int(seconds))) as process:
            process.wait(seconds + CLIENT_SECONDS)
            return process.lines("got")

    def producer(self) -> Process:
        """A producer that stays: say `topic body`, it answers `sent …` or `failed …`."""
        return self._start("Produce", talk=True)

    def consumer(self, topic: str, group: str) -> Process:
        """A consumer that stays until it is stopped: `got …` for each message."""
        return self._start("Consume", topic, group, str(1 << 30), "600")

    def _start(self, program: str, *arguments: str, talk: bool = False) -> Process:
        self._started += 1
        return Process(
            f"{program} with client {self.version}",
            [*java(self.version, self._home, (*self._jvm, silent(self._home))), program, self._namesrv, *arguments],
            log=self._home / f"{self._started}-{program}.out",
            env=environment(self._home),
            talk=talk,
        )
