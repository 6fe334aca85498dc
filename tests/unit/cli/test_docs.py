"""The manual names what there is: every command, option, field, format and mark."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
import torch
from pydantic import BaseModel
from typer.testing import CliRunner

from satwatch.analyze import Analysis, analyze_files
from satwatch.analyze.batch import FIELD_NAMES
from satwatch.analyze.marks import MARKS
from satwatch.analyze.sources import READERS
from satwatch.cli.app import app
from satwatch.probe.settings import ProbeSettings
from satwatch.sat import diagnostics
from satwatch.server.history_settings import HistorySettings
from satwatch.server.settings import MIB, TABLES, Settings, load_settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = {"analyze": ("analyze.md",), "bench": ("cli.md", "benchmarks.md"), "forecast": ("cli.md", "forecast.md")}


def page(*names: str) -> str:
    return "\n".join((DOCS / name).read_text(encoding="utf-8") for name in names)


COMMANDS = tuple(command.name for command in app.registered_commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option(command: str):
    screen = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"(?<=[\s│])--[a-z][a-z-]+", screen.partition("Options")[2])) - {"--help"}
    manual = page(*PAGES.get(command, ("cli.md",)))

    assert f"satwatch {command}" in page("cli.md")
    assert {option for option in options if f"{option}" not in manual} == set()


def test_every_field_and_format():
    manual = page("analyze.md")

    assert {name for name in FIELD_NAMES if f"`{name}`" not in manual} == set()
    assert {suffix for suffix in READERS if f"`{suffix}`" not in manual} == set()


def table(text: str) -> list[list[str]]:
    """Return the cells of the first table's rows."""
    rows = text.partition("\n| --- ")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")] for row in rows]


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page(name), re.DOTALL)


def test_every_mark():
    documented = {}
    for names, *ranges in table(page("analyze.md").partition("## Marks")[2]):
        for name in re.findall(r"`([a-z0-9_]+)`", names):
            documented[name] = tuple(ranges)

    assert documented == {
        name: (mark.usual_range, mark.watch_range, mark.suspect_range) for name, mark in MARKS.items()
    }


@pytest.mark.parametrize(
    ("heading", "settings"),
    [("Settings", Settings), ("The history", HistorySettings), ("The probe inside", ProbeSettings)],
)
def test_every_setting(heading: str, settings: type[BaseModel]):
    schema = settings.model_json_schema()["properties"]
    rows = table(page("cli.md").partition(f"### {heading}")[2])

    assert [row[0].strip("`") for row in rows] == [name for name in settings.model_fields if name not in TABLES]
    for name, default, unit, allowed, meaning in rows:
        setting = schema[name.strip("`")]
        shown = default.partition("`")[2].partition("`")[0]
        assert json.loads(shown or {"none": "null"}[default]) == setting["default"], name
        assert meaning == setting["description"], name
        assert ("bytes" in name) is (unit == "bytes"), name
        assert ("seconds" in name) is (unit == "seconds"), name
        if "minimum" in setting:
            assert allowed == f"{setting['minimum']:,} to {setting['maximum']:,}", name
        if "exclusiveMinimum" in setting:
            assert allowed == f"above {setting['exclusiveMinimum']:,}, at most {setting['maximum']:,}", name
        for bound in (setting.get("maxItems"), setting.get("maxLength")):
            assert bound is None or allowed.startswith(f"at most {bound:,} "), name
        if "enum" in setting:
            assert allowed == ", ".join(setting["enum"]), name
        for size in re.findall(r"\((\d+) MiB\)", default):
            assert int(size) * MIB == setting["default"], name


def test_the_complete_settings_file(tmp_path: Path):
    (text,) = blocks("cli.md", "toml")
    file = tmp_path / "satwatch.toml"
    file.write_text(text)

    settings = load_settings(file)

    assert settings.model_fields_set == set(Settings.model_fields)
    assert settings.model_copy(update={"listen": Settings().listen, "probe": None}) == Settings()
    assert settings.probe is not None
    assert settings.probe.model_fields_set == set(ProbeSettings.model_fields)
    defaults = {name: value for name, value in ProbeSettings(engines=settings.probe.engines) if value not in (None, ())}
    assert settings.probe.model_dump(include=set(defaults)) == defaults


def test_the_example_of_check_config(tmp_path: Path):
    (example,) = [block for block in blocks("cli.md", "console") if "$ satwatch check-config" in block]
    given, _, shown = example.removeprefix("$ cat satwatch.toml\n").partition("$ satwatch check-config satwatch.toml\n")
    file = tmp_path / "satwatch.toml"
    file.write_text(given)

    assert CliRunner().invoke(app, ["check-config", str(file)]).stdout == shown


def test_the_line_of_jsonl():
    (line,) = blocks("analyze.md", "json")

    result = CliRunner().invoke(app, ["analyze", "--json", "-"], input=line)

    assert (result.exit_code, json.loads(result.stdout)["step"]) == (0, 12)


def test_what_a_trainer_records_is_what_analyze_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Run the page's Python in its order: record as JSONL, record as NPZ, analyze the first."""
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    behavior = -torch.rand(4, 16, generator=generator)
    policy = (behavior + torch.randn(4, 16, generator=generator) * 0.01).requires_grad_()
    mask = torch.rand(4, 16, generator=generator) < 0.8
    advantage = torch.randn(4, 16, generator=generator)
    trainer = {"policy_logprob": policy, "behavior_logprob": behavior, "mask": mask, "advantage": advantage, "step": 7}
    snippets = blocks("analyze.md", "python")
    for snippet in snippets:
        assert len(snippet.splitlines()) <= 10
        exec(snippet, dict(trainer))

    expected = diagnostics(policy.detach() - behavior, advantage=advantage, mask=mask)
    jsonl, npz = [outcome.result for outcome in analyze_files([Path("run.jsonl"), Path("step_0007.npz")])]
    for analysis in (jsonl, npz):
        assert isinstance(analysis, Analysis)
        assert analysis.labels["step"] == 7
        assert analysis.diagnostics == expected
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("run.jsonl, line 1 0.0")


def test_the_signature_of_analyze_files():
    names = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default}"
        for parameter in inspect.signature(analyze_files).parameters.values()
    ]

    assert f"`analyze_files({', '.join([*names[:-1], '*', names[-1]])})`" in page("analyze.md")
