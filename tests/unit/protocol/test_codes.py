"""Request and response codes against the tables of docs/spec/remoting.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyromq.protocol.codes import RequestCode, ResponseCode

SPEC = (Path(__file__).parents[3] / "docs/spec/remoting.md").read_text(encoding="utf-8")
REQUESTS = SPEC.split("## 2 Request codes")[1].split("\n## 3 ")[0]
RESPONSES = SPEC.split("## 3 Response codes")[1].split("\n## 4 ")[0]

NAME = re.compile(r"[A-Z][A-Z0-9_]+[A-Z0-9]")

# Families of which the specification gives the range of numbers, and not every name.
FAMILIES = [range(1001, 1019), range(2001, 2005), range(3001, 3011), range(200070, 200080)]
RESPONSE_FAMILIES = [range(2000, 2017)]


def numbers(text: str) -> list[int]:
    """`400, 401`, `27 / 28`, `200050–200056`, `−1000`: the numbers that a cell lists."""
    found: list[int] = []
    for first, last in re.findall(r"([-−]?\d+)(?:–(\d+))?", text):
        start = int(first.replace("−", "-"))
        found += range(start, int(last or start) + 1)
    return found


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line[:1] == "|"]


def pairs(numbers_cell: str, names_cell: str) -> dict[str, int]:
    """Names and numbers of a pair of cells, when there are as many of the one as of the other."""
    named, numbered = NAME.findall(names_cell), numbers(numbers_cell)
    return dict(zip(named, numbered, strict=True)) if len(named) == len(numbered) else {}


def requests_of_the_specification() -> dict[str, int]:
    found: dict[str, int] = {}
    for row in cells(REQUESTS):
        if len(row) == 8:  # the two-column table of 4.9
            found |= pairs(row[0], row[1]) | pairs(row[4], row[5])
        elif len(row) == 4:  # additions of 5.x, some rows with several groups of numbers and names
            groups, names = row[0].split(";"), row[1].split(";")
            if len(groups) == len(names):
                for group, name in zip(groups, names, strict=True):
                    found |= pairs(group, name)
            found |= pairs(row[0], row[1])
    unserved = REQUESTS.split("Defined but served by nobody")[1].split("\n")[0]
    found |= {name: int(number) for number, name in re.findall(r"(\d+) ([A-Z_]+)", unserved)}
    return found


def responses_of_the_specification() -> dict[str, int]:
    found: dict[str, int] = {}
    for row in cells(RESPONSES):
        for numbered, text in ((row[0], row[1]), *([(row[2], row[3])] if len(row) == 4 else [])):
            names = text.split(" — ")[0].split("; 5.x ")[-1]  # of two names the newer
            found |= pairs(numbered.split(";")[-1], names.split(";")[-1])
    return found


def test_the_tables_were_found():
    """So that the tests below compare with something."""
    requests, responses = requests_of_the_specification(), responses_of_the_specification()
    assert len(requests) > 120
    assert len(responses) > 50
    assert requests["SEND_MESSAGE_V2"] == 310
    assert requests["BATCH_ACK_MESSAGE"] == 200151
    assert requests["RESET_MASTER_FLUSH_OFFSET"] == 908
    assert responses["FILTER_DATA_NOT_LATEST"] == 28
    assert responses["POLLING_FULL"] == 209
    assert responses["RPC_TIME_OUT"] == -1006
    assert responses["LMQ_QUOTA_EXCEEDED"] == 2017


def test_every_request_code_of_the_specification_has_its_name():
    ours = {code.name: code.value for code in RequestCode}
    assert requests_of_the_specification().items() - ours.items() == set()


def test_every_request_code_of_ours_is_in_the_specification():
    families = {number for family in FAMILIES for number in family}
    unknown = {code.name: code.value for code in RequestCode}.items() - requests_of_the_specification().items()
    assert {name for name, number in unknown if number not in families} == set()


@pytest.mark.parametrize("family", [range(2001, 2005), range(3001, 3011)], ids=["cold data", "users and policies"])
def test_a_family_without_names_in_the_table_is_whole(family):
    assert set(family) <= {code.value for code in RequestCode}


def test_users_and_policies_come_in_the_order_of_the_specification():
    order = ["CREATE", "UPDATE", "DELETE", "GET", "LIST"]
    expected = [f"AUTH_{verb}_{noun}" for noun in ("USER", "ACL") for verb in order]
    assert [RequestCode(number).name for number in range(3001, 3011)] == expected


def test_every_response_code_of_the_specification_has_its_name():
    ours = {code.name: code.value for code in ResponseCode}
    assert responses_of_the_specification().items() - ours.items() == set()


def test_every_response_code_of_ours_is_in_the_specification():
    families = {number for family in RESPONSE_FAMILIES for number in family}
    unknown = {code.name: code.value for code in ResponseCode}.items() - responses_of_the_specification().items()
    assert {name for name, number in unknown if number not in families} == set()


def test_the_controllers_response_codes_are_whole():
    assert set(range(2000, 2017)) <= {code.value for code in ResponseCode}


@pytest.mark.parametrize("codes", [RequestCode, ResponseCode])
def test_no_number_has_two_names(codes):
    assert len(codes) == len(codes.__members__)


def test_only_pop_needs_more_than_16_bits():
    assert min(code for code in RequestCode if code > 32767) == RequestCode.POP_MESSAGE
