"""pyromq.settings: the properties format, what one option takes, how the sources add up, how a file is replaced."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bounds import TOO_LONG

from pyromq.errors import ConfigError
from pyromq.settings import (
    GiB,
    KiB,
    MiB,
    Settings,
    computed,
    dump,
    environment_name,
    option,
    options_of,
    parse,
    replace_file,
)
from pyromq.settings.loading import Assignment
from pyromq.settings.properties import decode


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Mode(enum.StrEnum):
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaintConfig:
    listen_port: int = option("listenPort", 9876, "Port.", min=0, max=65535)
    layers: int = option("paintLayers", 2, "More cover better.", min=1, hot=True)
    glossy: bool = option("glossyPaint", False, "Shines.", hot=True)
    ratio: float = option("mixRatio", 0.5, "Water to colour.", min=0, max=1)
    colour: Colour = option("paintColour", Colour.RED, "Red is the default.")
    mode: Mode = option("paintMode", Mode.PERMISSIVE, "By value.")
    bucket: int = option("bucketSize", 64 * MiB, "Bytes per bucket.", size=True)
    brush: str = option("brush", "flat", "One of three.", choices=("flat", "round", "fan"))
    shelf: str = option("shelfPath", computed(str, lambda: "/shelf"), "Where the paint stands.")
    recipe: str = option("recipe", "", "Secret.", secret=True)
    ladder: int = option("ladderSteps", 5, "Walls are low here.", no_effect=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WallConfig:
    height: int = option("wallHeight", 3, "Metres.", min=1)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(key, value) for key, value, _ in parse(text)]


class TestProperties:
    @pytest.mark.parametrize(
        "text", ["key=value", "key:value", "key value", "key = value", "key\t: value", "\tkey=value"]
    )
    def test_key_and_value_stand_apart_by_equals_colon_or_blanks(self, text):
        assert pairs(text) == [("key", "value")]

    def test_comments_and_empty_lines_say_nothing(self):
        assert pairs("# one\n\n  ! two\n \t\nkey=value\n") == [("key", "value")]

    def test_a_comment_is_not_joined_with_the_next_line(self):
        assert pairs("# comment \\\nkey=value") == [("key", "value")]

    def test_a_backslash_joins_the_next_line_without_its_indent(self):
        assert pairs("list=a,\\\n    b,\\\r\n\tc\nnext=1") == [("list", "a,b,c"), ("next", "1")]

    def test_two_backslashes_at_the_end_are_one_and_join_nothing(self):
        assert pairs("path=C:\\\\\nnext=1") == [("path", "C:\\"), ("next", "1")]

    def test_a_blank_line_ends_a_joined_line(self):
        assert pairs("a=1\\\n\nb=2") == [("a", "1"), ("b", "2")]

    def test_escapes_are_undone_in_keys_and_values(self):
        assert pairs(r"a\=b\:c\ d=\t\n\r\f\u00fc\x") == [("a=b:c d", "\t\n\r\füx")]

    def test_two_escaped_halves_are_one_character(self):
        assert pairs(r"smile=\ud83d\ude00") == [("smile", "😀")]

    def test_a_value_keeps_separators_and_trailing_blanks(self):
        assert pairs("namesrvAddr=a:1;b=2 ") == [("namesrvAddr", "a:1;b=2 ")]

    def test_only_the_first_separator_counts(self):
        assert pairs("a = = b") == [("a", "= b")]

    def test_a_key_alone_has_an_empty_value(self):
        assert pairs("lonely\nalso=") == [("lonely", ""), ("also", "")]

    def test_each_entry_knows_the_line_of_its_key(self):
        assert [(p.key, p.line) for p in parse("# c\na=1\\\n 2\n\nb=3\ra=4")] == [("a", 2), ("b", 5), ("a", 6)]

    @pytest.mark.parametrize("bad", [r"b=\u00g0", r"b=\u12", r"b=\ud83d alone"])
    def test_a_bad_unicode_escape_names_file_and_line(self, bad):
        with pytest.raises(ConfigError, match=r"^x\.conf:2: "):
            parse("a=1\n" + bad, "x.conf")

    def test_bytes_that_are_not_utf8_are_latin1(self):
        assert decode("grüß".encode()) == "grüß"
        assert decode("grüß".encode("latin-1")) == "grüß"

    def test_a_byte_order_mark_is_no_part_of_the_first_key(self):
        assert pairs(decode(b"\xef\xbb\xbfkey=value")) == [("key", "value")]

    @hypothesis.settings(max_examples=25)
    @given(st.lists(st.tuples(st.text(min_size=1, max_size=9), st.text(max_size=9)), max_size=3))
    def test_what_is_written_reads_back_the_same(self, entries):
        assert pairs(decode(dump(entries).encode())) == entries

    @given(st.text(alphabet="ab\\u0=: \t\f\r\n#!"))
    def test_any_text_is_entries_or_a_config_error(self, text):
        try:
            entries = parse(text)
        except ConfigError:
            return
        assert all(1 <= entry.line <= text.count("\n") + text.count("\r") + 1 for entry in entries)

    def test_a_long_hostile_text_is_read_in_linear_time(self):
        started = time.process_time()
        for text in ("\\" * 200_001, "a\\\n" * 100_000, "\\u0041" * 50_000, " " * 200_000, "\\=" * 100_000 + "=v"):
            parse(text)
        assert time.process_time() - started < TOO_LONG  # minutes if it were quadratic


class TestOptions:
    @pytest.mark.parametrize(
        ("assignment", "attribute", "value"),
        [
            ("listenPort=0", "listen_port", 0),
            ("paintLayers= +7 ", "layers", 7),
            ("glossyPaint=TRUE", "glossy", True),
            ("glossyPaint=false", "glossy", False),
            ("mixRatio=0.25", "ratio", 0.25),
            ("paintColour=GREEN", "colour", Colour.GREEN),
            ("paintColour=green", "colour", Colour.GREEN),
            ("paintMode=enforcing", "mode", Mode.ENFORCING),
            ("bucketSize=65536", "bucket", 65536),
            ("bucketSize=64k", "bucket", 64 * KiB),
            ("bucketSize=1 GiB", "bucket", GiB),
            ("bucketSize=2MB", "bucket", 2 * MiB),
            ("brush=fan", "brush", "fan"),
            ("shelfPath=/a b", "shelf", "/a b"),
        ],
    )
    def test_a_text_becomes_a_value_of_the_declared_type(self, assignment, attribute, value):
        config = Settings.load(PaintConfig, sets=[assignment])[PaintConfig]
        assert getattr(config, attribute) == value
        assert type(getattr(config, attribute)) is type(value)

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            ("listenPort=nine", "listenPort must be a whole number, not 'nine'"),
            ("listenPort=1_0", "listenPort must be a whole number, not '1_0'"),
            ("listenPort=70000", "listenPort must be between 0 and 65535, not 70000"),
            ("paintLayers=0", "paintLayers must be at least 1, not 0"),
            ("glossyPaint=yes", "glossyPaint must be true or false, not 'yes'"),
            ("mixRatio=nan", "mixRatio must be a number, not 'nan'"),
            ("paintColour=BLUE", "paintColour must be one of RED, GREEN, not 'BLUE'"),
            ("paintMode=off", "paintMode must be one of permissive, enforcing, not 'off'"),
            ("bucketSize=lots", "bucketSize must be a number of bytes such as 65536 or 64k, not 'lots'"),
            ("brush=comb", "brush must be one of flat, round, fan, not 'comb'"),
            ("shelfPath=\udcff", r"shelfPath must be text, not '\\udcff'"),
        ],
    )
    def test_a_malformed_value_is_refused_with_its_source(self, assignment, complaint):
        with pytest.raises(ConfigError, match=f"^--set: {complaint}$"):
            Settings.load(PaintConfig, sets=[assignment])

    def test_every_value_reads_back_from_its_own_text(self):
        config = PaintConfig(glossy=True, colour=Colour.GREEN, mode=Mode.ENFORCING, ratio=0.125)
        for declared in options_of(PaintConfig):
            value = getattr(config, declared.name)
            assert declared.parse(declared.text(value)) == value


class TestSources:
    def test_later_sources_win(self, tmp_path):
        file = tmp_path / "paint.conf"
        file.write_text("paintLayers=3\nbrush=round\nlistenPort=1\nmixRatio=0.1\n")
        settings = Settings.load(
            PaintConfig,
            file=file,
            environ={"PYROMQ_BRUSH": "fan", "PYROMQ_LISTEN_PORT": "2", "PYROMQ_MIX_RATIO": "0.2", "HOME": "/"},
            sets=["listenPort=3", "mixRatio=0.3"],
            arguments=["mixRatio=0.4"],
        )
        config = settings[PaintConfig]
        assert (config.layers, config.brush, config.listen_port, config.ratio) == (3, "fan", 3, 0.4)
        assert {
            key: settings.origin(key) for key in ("glossyPaint", "paintLayers", "brush", "listenPort", "mixRatio")
        } == {
            "glossyPaint": "default",
            "paintLayers": f"{file}:1",
            "brush": "environment PYROMQ_BRUSH",
            "listenPort": "--set",
            "mixRatio": "argument",
        }

    def test_the_later_of_two_keys_in_a_file_wins_and_only_it_is_read(self, tmp_path):
        file = tmp_path / "paint.conf"
        file.write_text("listenPort=nonsense\nlistenPort=7\n")
        settings = Settings.load(PaintConfig, file=file)
        assert settings[PaintConfig].listen_port == 7
        assert settings.origin("listenPort") == f"{file}:2"

    def test_a_malformed_value_in_a_file_names_file_and_line(self, tmp_path):
        file = tmp_path / "paint.conf"
        file.write_text("# paint\n\nlistenPort = high\n")
        with pytest.raises(ConfigError) as caught:
            Settings.load(PaintConfig, file=file)
        assert str(caught.value) == f"{file}:3: listenPort must be a whole number, not 'high'"

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match=r"none\.conf: cannot be read: No such file or directory"):
            Settings.load(PaintConfig, file=tmp_path / "none.conf")

    @pytest.mark.parametrize("argument", ["listenPort", "=3"])
    def test_an_argument_without_key_or_value_is_refused(self, argument):
        with pytest.raises(ConfigError, match="expected key=value"):
            Settings.load(PaintConfig, arguments=[argument])

    @pytest.mark.parametrize(
        ("key", "name"),
        [
            ("brokerIP1", "PYROMQ_BROKER_IP1"),
            ("listenPort", "PYROMQ_LISTEN_PORT"),
            ("tls.server.keyPath", "PYROMQ_TLS_SERVER_KEY_PATH"),
            ("haSendHeartbeatInterval", "PYROMQ_HA_SEND_HEARTBEAT_INTERVAL"),
            ("useTLS", "PYROMQ_USE_TLS"),
            ("TLSMode", "PYROMQ_TLS_MODE"),
        ],
    )
    def test_each_key_has_a_variable(self, key, name):
        assert environment_name(key) == name

    def test_an_unknown_key_is_kept_and_reported_with_its_nearest_neighbour(self, tmp_path):
        file = tmp_path / "paint.conf"
        file.write_text("listenport=7\ncustomKey=x\n")
        settings = Settings.load(PaintConfig, file=file)
        assert settings[PaintConfig].listen_port == 9876
        assert settings.value("customKey") == "x"
        assert settings.notices() == [
            f"{file}:1: unknown setting listenport; did you mean listenPort?",
            f"{file}:2: unknown setting customKey",
        ]

    def test_a_setting_without_effect_is_reported_if_it_was_given_another_value(self):
        assert Settings.load(PaintConfig, sets=["ladderSteps=5"]).notices() == []
        assert Settings.load(PaintConfig, sets=["ladderSteps=9"]).notices() == [
            "--set: ladderSteps has no effect: walls are low here"
        ]

    def test_several_configs_are_loaded_together(self):
        settings = Settings.load(PaintConfig, WallConfig, sets=["wallHeight=9", "paintLayers=4"])
        assert settings[WallConfig].height == 9
        assert settings[PaintConfig].layers == 4
        with pytest.raises(KeyError):
            settings[Path]

    def test_settings_made_in_code_say_so(self):
        settings = Settings.of(PaintConfig(layers=5), WallConfig())
        assert settings.origin("paintLayers") == "code"
        assert settings.origin("wallHeight") == "default"


class TestListing:
    def test_the_listing_shows_each_value_with_its_origin_and_hides_secrets(self):
        settings = Settings.load(WallConfig, PaintConfig, sets=["recipe=eggs", "extra=1"], arguments=["wallHeight=4"])
        lines = settings.listing().splitlines()
        assert lines == sorted(lines)
        assert "wallHeight=4  # argument" in lines
        assert "paintMode=permissive  # default" in lines
        assert "recipe=******  # --set" in lines
        assert "extra=1  # --set" in lines
        assert "ladderSteps=5  # default; no effect" in lines

    def test_items_can_be_written_and_loaded_again(self, tmp_path):
        settings = Settings.load(
            PaintConfig, sets=["shelfPath=C:\\a b", "recipe= eggs", "paintColour=green", "extra=ü"]
        )
        file = tmp_path / "written.conf"
        file.write_text(dump(settings.items()), encoding="utf-8")
        again = Settings.load(PaintConfig, file=file)
        assert again[PaintConfig] == settings[PaintConfig]
        assert again.items() == settings.items()


class TestUpdates:
    def test_an_update_makes_new_settings_and_leaves_the_old_alone(self):
        before = Settings.load(PaintConfig, sets=["custom=1"])
        update = before.updated(
            [
                Assignment("paintLayers", "6", "request"),
                Assignment("listenPort", "1", "request"),
                Assignment("glossyPaint", "false", "request"),
                Assignment("custom", "2", "request"),
                Assignment("ladderSteps", "7", "request"),
                Assignment("stranger", "3", "request"),
            ]
        )
        assert before[PaintConfig].layers == 2
        assert update.settings[PaintConfig].layers == 6
        assert update.settings.origin("paintLayers") == "request"
        assert update.settings.value("custom") == "2"
        assert update.settings.value("stranger") is None
        assert update.changed == ["paintLayers", "listenPort", "custom", "ladderSteps"]
        assert update.at_restart == ["listenPort"]
        assert update.without_effect == ["ladderSteps"]
        assert update.ignored == ["stranger"]

    def test_stars_sent_back_do_not_become_the_secret(self):
        before = Settings.load(PaintConfig, sets=["recipe=eggs"])
        shown = [Assignment(key, text, "request") for key, text in before.items(reveal=False)]
        update = before.updated(shown)
        assert update.settings[PaintConfig] == before[PaintConfig]
        assert update.changed == []

    def test_an_update_with_a_malformed_value_changes_nothing(self):
        before = Settings.load(PaintConfig)
        with pytest.raises(ConfigError, match="request: paintLayers must be at least 1"):
            before.updated([Assignment("glossyPaint", "true", "request"), Assignment("paintLayers", "0", "request")])
        assert before[PaintConfig] == PaintConfig()


class TestReplaceFile:
    def test_folders_are_made_and_the_old_content_stays_as_bak(self, tmp_path):
        file = tmp_path / "a" / "b" / "kv.json"
        replace_file(file, b"one")
        assert file.read_bytes() == b"one"
        assert sorted(path.name for path in file.parent.iterdir()) == ["kv.json"]
        replace_file(file, b"two")
        replace_file(file, b"three")
        assert file.read_bytes() == b"three"
        assert file.with_name("kv.json.bak").read_bytes() == b"two"
        assert not file.with_name("kv.json.tmp").exists()

    def test_a_failed_write_leaves_the_old_file(self, tmp_path):
        file = tmp_path / "kv.json"
        replace_file(file, b"one")
        file.with_name("kv.json.tmp").mkdir()  # opening it for writing fails, also for root
        with pytest.raises(OSError, match="directory"):
            replace_file(file, b"two")
        assert file.read_bytes() == b"one"
