"""Settings from YAML, and messages about invalid ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from balancer.controller import Settings, SettingsError, load_settings
from balancer.controller.settings import as_settings
from balancer.execution import Limits


def test_defaults_move_nothing() -> None:
    assert not Settings().execute


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "interval: 30s\nmoved_cooldown: 1d\ndead_brokers: {heal_after: 1.5 h, act: false}\n"
        "webhooks: [{url: 'https://user:secret@example.com/hook', timeout: 500ms}]\n"
        "missing_replicas: {topics: {'orders.*': 3}}\n"
    )
    settings = load_settings(file)
    assert settings.interval == 30
    assert settings.moved_cooldown == 86400
    assert settings.dead_brokers.heal_after == 5400
    assert not settings.dead_brokers.act
    assert settings.webhooks[0].timeout == 0.5
    assert "secret" not in repr(settings)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("")
    assert load_settings(file) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("interval: soon", "interval: 'soon' found"),
        ("dead_brokers: {heel_after: 3}", "dead_brokers.heel_after: no such setting"),
        ("interval: 0", "interval: 0 found"),
        ("interval: 200000d", "interval: '200000d' found"),
        ("[1, 2]", "list found, a mapping expected"),
        ("slow_brokers: {max_share: 2}", "slow_brokers.max_share: 2 found"),
        ("excluded_topics: ['(']", "topic pattern '('"),
        ("webhooks: [{url: 'ftp://me:secret@example.com'}]", "webhooks.0.url"),
        ("webhooks: [{url: 'http://[secret'}]", "webhooks.0.url: an address with a host"),
        ("webhooks: [{url: 'http://host:99999/secret'}]", "a port of 1 to 65535"),
        ("webhooks: [{url: 'http://me@/secret'}]", "webhooks.0.url"),
        ("password: {secret", "not YAML"),
        ("webhooks: ['https://host/services/secret']", "webhooks.0: a mapping expected"),
        ("webhooks: ['https://user:secret@host/hook']", "webhooks.0: a mapping expected"),
        ("webhooks: 'https://host/secret'", "webhooks: a list expected"),
        ("webhooks: {url: 'https://host/secret'}", "webhooks: a list expected"),
        ("webhooks: [[{url: 'https://host/secret'}]]", "webhooks.0: a mapping expected"),
        ("webhooks: [{url: ['https://host/secret']}]", "webhooks.0.url: text expected"),
        ("webhooks: [{url: 'http://a', timeout: 'http://secret'}]", "webhooks.0.timeout: "),
        (
            "webhooks: [{url: 'http://a', 'http://secret': 1}]",
            "webhooks.0: an unknown key found, url, timeout, attempts, backoff expected",
        ),
        ("webhooks: [{'http://secret': 1}]", "webhooks.0.url: field required"),
    ],
)
def test_wrong_settings_are_reported_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert str(error.value).startswith(f"settings file {file}")
    assert said in str(error.value)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.yaml: No such file"):
        load_settings(tmp_path / "nothing.yaml")


def test_the_settings_of_the_guide_are_settings(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "controller.md").read_text()
    # the first is a whole file, the others show one setting
    block, *parts = re.findall(r"(?ms)^```yaml\n(.*?)^```$", page)
    for part in parts:
        as_settings(yaml.safe_load(part))
    file = tmp_path / "settings.yaml"
    file.write_text(block)
    settings = load_settings(file)
    assert not settings.slow_brokers.act
    assert settings.drained_brokers.brokers == (7,)
    # What it gives as an example is what is so unless set, where a number is given in words.
    assert settings.dead_brokers.alert_after == Settings().dead_brokers.alert_after
    assert settings.dead_brokers.heal_after == Settings().dead_brokers.heal_after
    assert settings.moved_cooldown == Settings().moved_cooldown
    assert settings.goal_violations == Settings().goal_violations


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("execution: {throttle: 50MX/s}", "execution.throttle: '50MX/s' found, bytes/s like"),
        ("execution: {task_timeout: soon}", "execution.task_timeout: 'soon' found, seconds, or"),
        ("execution: {throttel: 5}", "execution.throttel: no such limit, one of "),
        (
            "execution: {concurrent_moves: many}",
            "execution.concurrent_moves: 'many' found, a whole",
        ),
        ("execution: {others: leave}", "execution.others: 'leave' found, 'wait' or 'skip'"),
        ("max_bytes: 2XB", "max_bytes: '2XB' found, bytes like 500MB, 10GB or 2TiB expected"),
        ("interval: soon", "interval: 'soon' found, seconds, or text like 250ms, 30m, 2h or 1d"),
        ("max_moves: 1.5", "max_moves: 1.5 found, a whole number expected"),
        ("execute: perhaps", "execute: 'perhaps' found, true or false expected"),
        (
            "slow_brokers: {signals: {log_flush_time_ms_p99: 1}}",
            "slow_brokers.signals: 'log_flush_time_ms_p99' found, one of cpu, ",
        ),
        ("model: {believed: [true]}", "model.believed.0: True found, a whole number expected"),
        ("model: {believed: [1.0]}", "model.believed.0: 1.0 found, a whole number expected"),
        ("model: {believed: ['1']}", "model.believed.0: '1' found, a whole number expected"),
    ],
)
def test_a_wrong_value_names_file_key_value_and_form(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert str(error.value).startswith(f"settings file {file}: {said}")


def test_bytes_rates_and_durations_are_taken_with_their_unit(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "max_bytes: 2TB\nslow_brokers: {min_bytes_in: 1MB/s}\n"
        "execution: {throttle: 50MB/s, log_dir_throttle: 1GiB/s, task_timeout: 10m}\n"
    )
    settings = load_settings(file)
    assert settings.max_bytes == 2e12
    assert settings.slow_brokers.min_bytes_in == 1e6
    limits = Limits.of(**settings.execution)
    assert (limits.throttle, limits.log_dir_throttle) == (50e6, 2**30)
    assert limits.task_timeout == 600
