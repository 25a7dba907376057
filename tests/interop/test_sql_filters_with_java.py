"""SQL92 with RocketMQ's own parts: its evaluator next to ours, and its clients under our broker."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.interop import jars
from tests.interop.drivers import Driver
from tests.interop.process import PeerFailed
from tests.interop.pyromq_up import PyroMQ

from pyromq.errors import InvalidFilter
from pyromq.filter import BloomFilter, compile_filter
from pyromq.filter.java_numbers import NotANumber

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "java_filter" / "Evaluate.java"
SOON = 10.0
ROUNDS = 4000

NAMES = ("a", "b", "c")
VALUES = [
    "5",
    "x",
    "true",
    "TRUE",
    "False",
    "10.5",
    "-1",
    "+7",
    " 5",
    "5 ",
    "1_0",
    "inf",
    "nan",
    "NaN",
    "-NaN",
    "Infinity",
    "-Infinity",
    "0x1p3",
    "0x.8P1d",
    "0xp1",
    "0x1",
    "1e3",
    "1e",
    "1e400",
    "1e-400",
    "-0.0",
    "0.0",
    "5f",
    "5d",
    "5l",
    ".5",
    "5.",
    ".",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "0000000000000000000005",
    "٥",
    "５",
    "𝟓",
    "\xa05",
    "\x1f5\x00",
    "NaNd",
    "0x1p99999999999",
    "-0x1p-9999999999",
    "é",
    "it's",
]
STRINGS = ("'x'", "'5'", "''", "'true'", "'it''s'", "'é'")
NUMBERS = (*"0 5 10 1.5 5. .5 1e3 2147483647 2147483648 9223372036854775807 3L 9007199254740993".split(),)  # noqa: SIM905
WORDS = (
    *"a b 5 1.5 'x' ( ) , = <> < > <= >= + - NOT AND OR BETWEEN IN IS NULL TRUE -- /* */ ' # 0 . 1e3 l 007 0.0".split(),  # noqa: SIM905
    "\n",
)


class Writer:
    """Writes expressions, most of them right. With `is_5x` also those of 5.x, which are no operators in 4.9."""

    def __init__(self, seed: int, *, is_5x: bool) -> None:
        self.any = random.Random(seed)
        self._is_5x = is_5x

    def text(self) -> str:
        if self.any.random() < 0.3:
            return "".join(self.any.choice(WORDS) + self.any.choice(("", " ")) for _ in range(self.any.randint(1, 9)))
        return self._or(3)

    def message(self) -> dict[str, str]:
        return {name: self.any.choice(VALUES) for name in NAMES if self.any.random() < 0.7}

    def _or(self, depth: int) -> str:
        text = self._condition(depth)
        while self.any.random() < 0.4:
            text += self.any.choice((" AND ", " OR ", " or ")) + self._condition(depth)
        return text

    def _condition(self, depth: int) -> str:
        pick, name = self.any.choice, self.any.choice(NAMES)
        one, other = self._unary(depth), self._unary(depth)
        forms = [
            f"{name} {pick(('<', '<=', '>', '>='))} {pick((*NUMBERS, *NAMES, '-5', '-2147483648', '-1.5'))}",
            f"{name} {pick(('', 'NOT '))}BETWEEN {pick(('1', '-5', '1.5', name))} AND {pick(('10', '7.5', name))}",
            f"{name} {pick(('', 'not '))}IN ({', '.join(pick(STRINGS) for _ in range(self.any.randint(1, 6)))})",
            f"{name} IS {pick(('', 'NOT '))}NULL",
            f"{name} {pick(('=', '<>'))} {pick((*NUMBERS, *STRINGS, 'TRUE', 'FALSE', 'NULL', *NAMES))}",
            f"{one} {pick(('=', '<>', '<', '>'))} {other}",
            f"{one} = {other} IS NULL",
            f"{one} BETWEEN {other} AND {pick(NUMBERS)}",
            one,
        ]
        if self._is_5x:
            words = ("CONTAINS", "startswith", "EndsWith")
            forms.append(f"{one} {pick(('', 'NOT '))}{pick(words)} {pick(STRINGS)}")
        return pick(forms)

    def _unary(self, depth: int) -> str:
        sign = self.any.choice(("", "", "", "", "-", "+ ", "NOT "))
        if depth and self.any.random() < 0.3:
            return f"{sign}({self._or(depth - 1)})"
        return sign + self.any.choice((*NAMES, *NAMES, *NUMBERS, *STRINGS, "TRUE", "false", "Null"))


def coded(text: str) -> str:
    return text.encode("utf-16-be").hex()


def ask_java(version: str, lines: list[str]) -> list[str]:
    command = [jars.tool("java"), "-cp", jars.class_path(f"apache-{version}"), str(PROGRAM)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def our_answers(text: str, messages: list[dict[str, str]]) -> str:
    try:
        compiled = compile_filter(text)
    except InvalidFilter:
        return "refused"
    answers = []
    for message in messages:
        try:
            value = compiled._evaluate(message.get)
        except NotANumber:
            answers.append("error")
        else:
            answers.append("null" if value is None else str(value).lower())
    return " ".join(answers)


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_an_expression_is_what_rocketmq_says_it_is(java_packages: None, version: str) -> None:
    writer = Writer(20_240_607, is_5x=version == "5.5.0")
    asked = [(writer.text(), [writer.message() for _ in range(4)]) for _ in range(ROUNDS)]
    lines = [
        " ".join([coded(text), *(",".join(map(coded, sum(message.items(), ()))) for message in messages)])
        for text, messages in asked
    ]
    answers = ask_java(version, lines)
    assert len(answers) == ROUNDS
    differences = [
        (text, messages, answer)
        for (text, messages), answer in zip(asked, answers, strict=True)
        if our_answers(text, messages) != answer
    ]
    assert differences == []
    assert ROUNDS / 4 < answers.count("refused") < ROUNDS * 3 / 4


def test_the_bits_of_a_group_are_those_of_rocketmq(java_packages: None) -> None:
    pick = random.Random(7)
    asked = []
    for _ in range(500):
        group, topic = ("".join(pick.choices("abcXYZ019-_%|é€😀", k=pick.randint(0, 40))) for _ in range(2))
        asked.append((pick.randint(1, 99), pick.randint(1, 400), group, topic))
    lines = [f"bloom {percent} {groups} {coded(f'{group}#{topic}')}" for percent, groups, group, topic in asked]
    for (percent, groups, group, topic), answer in zip(asked, ask_java("5.5.0", lines), strict=True):
        bloom = BloomFilter.of(percent, groups)
        assert answer == " ".join(map(str, (bloom.bits, *bloom.positions(group, topic))))


# Clients


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyroMQ]:
    with PyroMQ(tmp_path_factory.mktemp("up"), enablePropertyFilter="true") as running:
        yield running


@pytest.fixture(scope="module", params=["java-5.5.0", "java-4.9.8"])
def peer(
    request: pytest.FixtureRequest, up: PyroMQ, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    with Driver(request.param, tmp_path_factory.mktemp(request.param), up.namesrv) as driver:
        yield driver


def test_a_java_consumer_gets_what_its_expression_selects(peer: Driver) -> None:
    topic = f"sql-{peer.peer.replace('.', '-')}"
    for price in range(8):
        peer.send(topic=topic, body=f"m-{price}", tags="AB"[price % 2], property=f"price:{price}")
    peer.send(topic=topic, body="without", tags="B")
    expression = "price > 3 AND TAGS = 'B'".replace(" ", "+")
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic, sql=expression)
    peer.wait_for_bodies(topic, {"m-5", "m-7"}, SOON)
    peer.send(topic=topic, body="not-this", tags="A", property="price:9")
    peer.send(topic=topic, body="but-this", tags="B", property="price:9")
    peer.wait_for_bodies(topic, {"but-this"}, SOON)
    assert sorted(peer.bodies(topic)) == ["but-this", "m-5", "m-7"]
    peer.do("leave", name=topic)


def test_a_java_consumer_with_a_wrong_expression_does_not_start(peer: Driver) -> None:
    topic = f"wrong-{peer.peer.replace('.', '-')}"
    peer.send(topic=topic, body="m")
    with pytest.raises(PeerFailed, match=r"column 8: expected a value, found the end"):
        peer.do("push", name=topic, group=f"g-{topic}", topic=topic, sql="price+>")
