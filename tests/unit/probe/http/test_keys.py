"""Keys come from files and the environment, and are shown nowhere."""

from __future__ import annotations

import copy
import pickle
import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr

from satwatch.errors import ConfigError
from satwatch.probe.http.keys import EngineKeys, read_keys

PLANTED = "planted-key-4711"


def test_a_file_beats_the_environment_and_white_space_around_it_is_stripped(tmp_path):
    file = tmp_path / "api"
    file.write_text(f"  {PLANTED}\n\n")
    environ = {"SATWATCH_ENGINE_API_KEY": "other", "SATWATCH_ENGINE_ADMIN_KEY": " from-environment\n"}
    keys = read_keys(file, None, environ)
    assert keys.api_key == SecretStr(PLANTED)
    assert keys.admin_key == SecretStr("from-environment")


@pytest.mark.parametrize("key", [PLANTED, f"{PLANTED}/with+slash=", "a" * 5000])
def test_a_key_in_the_place_of_its_file_is_not_repeated(key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        read_keys(Path(key), None, {})
    assert key[:8] not in "".join(traceback.format_exception(refused.value))


def test_nothing_given_is_no_key_and_an_empty_variable_is_nothing():
    assert read_keys(None, None, {"SATWATCH_ENGINE_API_KEY": ""}) == EngineKeys(None, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got nothing"),
        (b" \n\t ", "got nothing"),
        (f"{PLANTED}\nsecond".encode(), "got other characters"),
        (f"{PLANTED} second".encode(), "got other characters"),
        (f"{PLANTED}é".encode(), "got other characters"),
        (f"{PLANTED}\x00".encode(), "got other characters"),
        (PLANTED.encode() * 300, "got too much"),
    ],
)
def test_a_file_without_one_key_is_refused_by_its_name_and_not_by_its_content(tmp_path, content, message):
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_keys(None, file, {})
    assert str(refused.value).startswith(f"admin_key_file {file}: {message}")
    assert "planted" not in "".join(traceback.format_exception(refused.value))


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path):
    for path, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"api_key_file {path}: can't be read: {why}"):
            read_keys(path, None, {})
    with pytest.raises(ConfigError, match="api_key_file: can't be read"):
        read_keys(Path("a\0b"), None, {})


def test_a_variable_is_refused_by_its_name_and_not_by_its_content():
    with pytest.raises(ConfigError) as refused:
        read_keys(None, None, {"SATWATCH_ENGINE_API_KEY": f"{PLANTED}\nX-Injected: 1"})
    assert str(refused.value).startswith("SATWATCH_ENGINE_API_KEY: got other characters")
    assert "planted" not in str(refused.value)


def test_keys_show_themselves_nowhere_and_do_not_travel():
    keys = EngineKeys(SecretStr(PLANTED), SecretStr(f"{PLANTED}-admin"))
    assert PLANTED not in f"{keys!r} {keys} {keys.api_key} {[keys]}"
    for travel in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="can't be pickled or copied"):
            travel(keys)


def test_keys_are_struck_out_of_texts_the_longer_one_whole():
    keys = EngineKeys(SecretStr(PLANTED), SecretStr(f"{PLANTED}-admin"))
    assert keys.hide(f"a {PLANTED}-admin b {PLANTED} c") == "a ********** b ********** c"
    assert EngineKeys(SecretStr("12"), None).hide("version 12") == "version 12"


@pytest.mark.parametrize(
    "written",
    ["Key+of/'4711\"%", "KEY+OF/'4711\"%", "Key%2Bof%2F%274711%22%25", "key+of/'4711%22%", "S2V5K29mLyc0NzExIiU="],
)
def test_a_key_is_struck_out_however_an_engine_writes_it(written):
    keys = EngineKeys(SecretStr("Key+of/'4711\"%"))
    assert keys.hide(f"<{written}>") == "<**********>"
