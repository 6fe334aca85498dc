import stat
import subprocess
import sys
import tempfile

import pytest

from satwatch.demo import leash, serving
from satwatch.demo.serving import demo_store
from satwatch.demo.sidecar import Announcement
from satwatch.history import open_store


@pytest.fixture
def home(tmp_path):
    return {"XDG_STATE_HOME": str(tmp_path)}


def test_the_file_is_made_in_the_state_folder_for_the_user_alone(tmp_path, home):
    assert demo_store(home) == tmp_path / "satwatch" / "satwatch-demo.sqlite"
    assert stat.S_IMODE((tmp_path / "satwatch").stat().st_mode) == 0o700


def test_demos_after_each_other_add_to_one_file(home):
    first = demo_store(home)
    open_store(str(first)).close()
    assert demo_store(home) == first


def test_a_demo_beside_others_has_a_file_of_its_own(tmp_path, home):
    first = open_store(str(demo_store(home)))
    second = open_store(str(demo_store(home)))
    assert demo_store(home) == tmp_path / "satwatch" / "satwatch-demo-3.sqlite"
    first.close()
    second.close()
    assert demo_store(home) == tmp_path / "satwatch" / "satwatch-demo.sqlite"


def test_what_is_no_history_is_left_as_it_is(tmp_path, home):
    other = tmp_path / "satwatch" / "satwatch-demo.sqlite"
    other.parent.mkdir()
    other.write_text("my notes, and long ones: " * 100)
    assert demo_store(home) == tmp_path / "satwatch" / "satwatch-demo-2.sqlite"
    assert other.read_text().startswith("my notes")


def test_without_a_folder_to_write_to_the_file_is_a_temporary_one(tmp_path, home, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "satwatch").write_text("a file where the folder should be")
    path = demo_store(home)
    assert path.parent.parent == tmp_path
    assert Announcement("127.0.0.1:41", str(path)).is_temporary


@pytest.mark.parametrize(
    ("arguments", "options"), [(["serve"], ["--store", "own.sqlite"]), (["serve", "--store", "a"], ["--store", "a"])]
)
def test_the_store_is_added_where_none_is_named(monkeypatch, arguments, options):
    ran = []
    monkeypatch.setattr(leash, "hold", lambda: ran.append("held"))
    monkeypatch.setattr(leash, "become_satwatch", lambda: ran.append(sys.argv[2:]))
    monkeypatch.setattr(serving, "demo_store", lambda: "own.sqlite")
    monkeypatch.setattr(sys, "argv", ["serving", *arguments])
    serving.main()
    assert ran == ["held", options]


def test_the_leash_ends_the_command_when_its_holder_is_gone(tmp_path):
    package = tmp_path / "satwatch" / "__main__.py"
    package.parent.mkdir()
    package.write_text("import signal, sys\nprint(sys.argv[1:], flush=True)\nwhile True: signal.pause()\n")
    # A stand-in for the command: its __main__ is found before the real one.
    code = (
        "import sys, satwatch; satwatch.__path__.insert(0, sys.argv.pop(1))\n"
        "from satwatch.demo import leash; leash.hold(); leash.become_satwatch()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(package.parent), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "['serve']\n"
        process.stdin.close()
        assert process.wait() == -15
