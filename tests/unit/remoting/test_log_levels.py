"""Log levels as settings: which loggers follow, and what a file may change while a server runs."""

from __future__ import annotations

import logging

import pytest

from pyromq.errors import ConfigError
from pyromq.remoting.log_levels import Level, LogConfig, apply_log_levels, with_levels_of
from pyromq.settings import Settings

NAMES = ("pyromq", "pyromq.broker", "pyromq.namesrv", "pyromq.store", "pyromq.remoting")


@pytest.fixture(autouse=True)
def restored_levels():
    before = {name: logging.getLogger(name).level for name in NAMES}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def level(name):
    return logging.getLogger(name).level


def test_each_setting_has_its_logger():
    config = LogConfig(level=Level.ERROR, store=Level.DEBUG)
    apply_log_levels(config)
    assert (level("pyromq"), level("pyromq.store")) == (logging.ERROR, logging.DEBUG)
    apply_log_levels(LogConfig(), config)
    assert (level("pyromq"), level("pyromq.store")) == (logging.NOTSET, logging.NOTSET)


def test_levels_that_others_have_set_stay():
    logging.getLogger("pyromq.remoting").setLevel(logging.CRITICAL)
    apply_log_levels(LogConfig(store=Level.INFO), LogConfig())
    assert level("pyromq.remoting") == logging.CRITICAL


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "broker.conf"

    def write(text):
        path.write_text(text)
        return path

    return write


def test_a_file_gives_and_takes_levels(file):
    settings = Settings.load(LogConfig, file=file("logLevel.store=Debug\n"))
    assert settings[LogConfig].store is Level.DEBUG
    settings = with_levels_of(file("logLevel=warning\nlistenPort=7\n"), settings)
    assert (settings[LogConfig].level, settings[LogConfig].store) == (Level.WARNING, Level.INHERITED)
    assert settings.value("listenPort") is None


def test_what_the_command_line_and_the_environment_say_stays(file):
    settings = Settings.load(LogConfig, sets=["logLevel=error"], environ={"PYROMQ_LOG_LEVEL_STORE": "info"})
    settings = with_levels_of(file("logLevel=debug\nlogLevel.store=debug\nlogLevel.broker=debug\n"), settings)
    config = settings[LogConfig]
    assert (config.level, config.store, config.broker) == (Level.ERROR, Level.INFO, Level.DEBUG)


def test_without_a_file_nothing_changes(tmp_path):
    settings = Settings.load(LogConfig, sets=["logLevel=error"])
    assert with_levels_of(tmp_path / "missing", settings) is settings


def test_a_level_that_is_none_is_named_with_its_line(file):
    settings = Settings.load(LogConfig)
    with pytest.raises(ConfigError, match=r"broker\.conf:2: logLevel\.store must be one of .*, not 'loud'"):
        with_levels_of(file("#\nlogLevel.store=loud\n"), settings)
