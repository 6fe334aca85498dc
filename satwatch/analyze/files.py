"""Many files, one outcome a batch: a bad batch is an outcome too, and stops nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satwatch.analyze.analysis import Analysis, analyze_batch
from satwatch.analyze.batch import recorded_batch
from satwatch.analyze.exported import analyze_exported, is_exported
from satwatch.analyze.sources import Entry, entries
from satwatch.errors import InvalidBatchError, SatwatchError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one recorded batch, or of a file that couldn't be read on.

    Attributes:
        file: the file's path as given; ``-`` is standard input.
        batch: the batch's index in the file, from 0.
        where: its place in the file in words, such as ``line 3``; empty when the file is one batch.
        result: the analysis, or the error that names the field.
    """

    file: Path
    batch: int
    where: str
    result: Analysis | SatwatchError

    @property
    def name(self) -> str:
        """File and place, in words."""
        return self._named(str(self.file))

    @property
    def short_name(self) -> str:
        """What a reader calls it: the step of an exported run, or else the file's own name and place, in words."""
        labels = self.result.labels if isinstance(self.result, Analysis) else {}
        if isinstance(self.result, Analysis) and self.result.bounds is None and "step" in labels:
            return ", ".join([*([str(labels["run"])] if "run" in labels else []), f"step {labels['step']}"])
        return self._named(self.file.name)

    def _named(self, file: str) -> str:
        file = "standard input" if file == "-" else file
        return f"{file}, {self.where}" if self.where else file


def analyze_files(
    paths: Iterable[Path], overrides: Mapping[str, Any] | None = None, *, ignore_unknown: bool = False
) -> Iterator[Outcome]:
    """Analyze every batch of every file, in order.

    Args:
        paths: the files; ``-`` reads JSONL from standard input.
        overrides: fields of the rule that beat what a file says.
        ignore_unknown: leave out unknown fields instead of refusing them.

    Yields:
        One outcome a batch, and one for a file that holds none or is damaged. Nothing is kept of a batch once its
        outcome is out, so files of any length pass through.
    """
    for path in paths:
        batch = 0
        try:
            for batch, entry in enumerate(entries(path)):
                yield Outcome(path, batch, entry.where, _result(entry, overrides or {}, ignore_unknown))
        except SatwatchError as error:
            yield Outcome(path, batch, "", error)
        except ImportError:  # a missing extra, which is not the file's fault
            raise
        except Exception as error:  # noqa: BLE001 - the readers' edge: a damaged file fails in its library's own ways
            yield Outcome(path, batch, "", _unreadable(error))


def _unreadable(error: Exception) -> InvalidBatchError:
    reason = str(error).partition("\n")[0][:200]
    return InvalidBatchError(f"can't be read ({type(error).__name__}{f': {reason}' if reason else ''})")


def _result(entry: Entry, overrides: Mapping[str, Any], ignore_unknown: bool) -> Analysis | SatwatchError:
    try:
        fields = entry.load()
        if is_exported(fields):
            return analyze_exported(fields, overrides)
        return analyze_batch(recorded_batch(fields, ignore_unknown=ignore_unknown), overrides)
    except SatwatchError as error:
        return error
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - the readers' edge: what a file holds is nobody's promise
        return _unreadable(error)
