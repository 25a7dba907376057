"""deploy/: not built here, but every command, option and setting in it is one that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from pyromq.broker.config import CONFIGS as BROKER_CONFIGS
from pyromq.cli.main import NOUNS, module_of
from pyromq.namesrv.config import CONFIGS as NAMESRV_CONFIGS
from pyromq.settings import options_of

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
LINES = re.sub(r"\\\n\s*", "", (DEPLOY / "Containerfile").read_text()).splitlines()
SETTINGS = {
    "broker": {option.key for config in BROKER_CONFIGS for option in options_of(config)},
    "namesrv": {option.key for config in NAMESRV_CONFIGS for option in options_of(config)},
}


def instructions(name):
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def check(words):
    """That `pyromq WORDS` is a command, and its settings are known."""
    noun, *rest = words
    assert noun in NOUNS
    assert module_of(NOUNS[noun], rest)
    for word in rest:
        key, equals, _ = word.partition("=")
        if equals and not word.startswith("-"):
            assert key in SETTINGS[noun], word


@pytest.mark.parametrize("service", sorted(COMPOSE["services"]))
def test_every_service_runs_a_command_that_there_is(service):
    config = COMPOSE["services"][service]
    check(config["command"])
    kind, program, *words = config["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "pyromq")
    check(words)


def test_every_volume_is_declared_and_every_published_port_is_listened_on():
    volumes = [each.partition(":")[0] for service in COMPOSE["services"].values() for each in service["volumes"]]
    assert sorted(volumes) == sorted(COMPOSE["volumes"])
    for name, service in COMPOSE["services"].items():
        [port] = service["ports"]
        inside = port.partition(":")[2]
        listens = f"listenPort={inside}" in service["command"] or (name == "namesrv" and inside == "9876")
        assert listens, name
        assert port.partition(":")[0] == inside  # what a broker advertises is its own port


def test_the_image_runs_a_command_that_there_is_as_a_user_without_rights():
    [entry], [command] = instructions("ENTRYPOINT"), instructions("CMD")
    assert yaml.safe_load(entry) == ["pyromq"]
    check(yaml.safe_load(command))
    [health] = instructions("HEALTHCHECK")
    check(yaml.safe_load(health[health.index("[") :])[1:])
    assert instructions("USER") == ["3000:3000"]


def test_everything_that_is_copied_into_the_image_is_there():
    for words in map(shlex.split, instructions("COPY")):
        if not words[0].startswith("--from"):
            assert all((DEPLOY.parent / source).exists() for source in words[:-1]), words
    assert COMPOSE["services"]["namesrv"]["build"]["dockerfile"] == "deploy/Containerfile"
