"""Which version an engine serves, since when, and how long it took to get there.

An engine says its version twice: as a label that can be asked for at any time, and in each finished response. The
response is the authority. Its version was taken where the tokens were made, and a label can stay behind: SGLang's does
after an update in place whose cache flush failed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from satwatch.engines.versions import read_label
from satwatch.errors import InvalidBatchError
from satwatch.types import TrainerFacts

# Looks that must agree before an engine is accused of what one unlucky moment can show.
LOOKS_TO_ACCUSE: Final = 2
SIGHTS: Final = 16
# A label is shown and reported: an engine must not fill a screen with one.
LABEL_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class VersionHistory:
    """What one process of an engine has said of its version; labels are canonical text, and times the probe's clock.

    Attributes:
        label: the label said last.
        label_at: the look that saw it first.
        label_before: the label that it replaced.
        is_said: whether the last look saw any label.
        response: what responses name, if any did since the label last changed.
        response_at: when the last of them came.
        served: the version served, as text.
        served_at: its first sight.
        saw_change: whether another version was seen before.
        published_at: when the version served was published, as first told.
        looks: when the last looks were that succeeded, two at most.
        sights: the latest versions served, each with its first sight, oldest first; without those that a fall undid.
        fell_at: when the version served fell to what it is; None: it rose, or is the first.
        changes: how often the version served changed.
    """

    label: str | None = None
    label_at: float = 0.0
    label_before: str | None = None
    is_said: bool = False
    response: str | None = None
    response_at: float = 0.0
    served: str | None = None
    served_at: float = 0.0
    saw_change: bool = False
    published_at: float | None = None
    looks: tuple[float, ...] = ()
    sights: tuple[tuple[int, float], ...] = ()
    fell_at: float | None = None
    changes: int = 0

    @property
    def version_labelled(self) -> int | None:
        """The label as a version."""
        return version_of(self.label) if self.is_said else None

    @property
    def version_served(self) -> int | None:
        """The version served; None if it has no number."""
        return version_of(self.served) if self.is_said or self.response is not None else None

    @property
    def is_label_stale(self) -> bool:
        """Whether responses name another version than the label."""
        return self.is_said and self.response is not None and self.response != self.label


def version_of(label: str | None) -> int | None:
    """Read a label; None: there is none, or it is no version.

    >>> version_of("7"), version_of("default"), version_of(None)
    (7, None, None)
    """
    try:
        return read_label("version", label)
    except InvalidBatchError:  # beyond int64
        return None


def has_fallen(before: str | None, label: str | None) -> bool:
    """Tell whether a label went back: a trainer that began again counts anew, perhaps over the same weights."""
    was, now = version_of(before), version_of(label)
    return was is not None and now is not None and now < was


def canonical(label: str | None) -> str | None:
    """Write one version in one way.

    >>> canonical("007"), canonical("default")
    ('7', 'default')
    """
    version = version_of(label)
    return label and label[:LABEL_LENGTH] if version is None else str(version)


def label_of_response(meta_info: Mapping[str, Any]) -> str | None:
    """Return the version that a finished response ends with: its last span's, else the one it names.

    Anything that can't be read is None: a response is somebody's, and need not be of any form.

    >>> label_of_response({"weight_version": "7", "weight_versions": [{"version": "7"}, {"version": "8"}]})
    '8'
    """
    spans = meta_info.get("weight_versions")
    last = spans[-1] if isinstance(spans, list | tuple) and spans else None
    named = last.get("version") if isinstance(last, Mapping) else meta_info.get("weight_version")
    if isinstance(named, bool) or not isinstance(named, str | int):
        return None
    try:
        return canonical(str(named))
    except ValueError:  # an int of thousands of digits
        return None


def see_label(history: VersionHistory, at: float, took: float, label: str | None) -> VersionHistory:
    """Take in a look's label; ``at`` is when the look ended."""
    label = canonical(label)
    if label is not None and label != history.label:
        # A response from before the change says nothing of what came after it, be that newer or older. One that came
        # during the look is from before if it names the label that was, or an older version than the new one.
        is_past = history.response_at <= at - took or history.response == history.label
        is_past = is_past or has_fallen(label, history.response)
        history = replace(
            history,
            label=label,
            label_at=at,
            label_before=history.label,
            response=None if is_past else history.response,
        )
    history = _settle(replace(history, is_said=label is not None), at)
    return replace(history, looks=(*history.looks, at)[-LOOKS_TO_ACCUSE:])


def see_answer(history: VersionHistory, at: float, took: float, label: str | None) -> VersionHistory:
    """Take in the version of a response that the probe itself asked for, and so knows when it was made."""
    label = canonical(label)
    if label is None or at - took < history.label_at:
        return history
    return _settle(replace(history, response=label, response_at=at), at)


def see_response(history: VersionHistory, at: float, label: str | None) -> VersionHistory:
    """Take in the version of a response that came to somebody else; it may be old news, so it can only raise."""
    version, served = version_of(label), version_of(history.served)
    if version is None or label == history.label_before or (served is not None and version < served):
        return history
    if version == served and history.response is None:
        return history  # the label says the same
    return _settle(replace(history, response=canonical(label), response_at=at), at)


def _settle(history: VersionHistory, at: float) -> VersionHistory:
    served = history.response if history.response is not None else history.label
    if served is None or served == history.served:
        return history
    is_change, version = history.served is not None, version_of(served)
    sight = () if version is None else ((version, at),)
    # A version that falls is a trainer that began again from a checkpoint: its versions mean other weights.
    kept = tuple(seen for seen in history.sights if version is None or seen[0] < version)
    return replace(
        history,
        served=served,
        served_at=at,
        saw_change=is_change,
        published_at=None,
        sights=(*kept, *sight)[-SIGHTS:],
        fell_at=at if version is not None and any(seen > version for seen, _ in history.sights) else None,
        changes=history.changes + is_change,
    )


def recall_publishing(history: VersionHistory, facts: TrainerFacts) -> VersionHistory:
    """Keep when the version served was published: the trainer's history of it is short."""
    version = history.version_served
    if version is None or history.published_at is not None:
        return history
    return replace(history, published_at=facts.published_at(version))


def passed_at(history: VersionHistory, version: int, since: float | None = None) -> float:
    """Return when an engine that serves a newer version was first seen to; it may have moved on since.

    Args:
        history: the engine's.
        version: the one that it passed.
        since: what was seen before doesn't count, and if nothing was since, it is infinitely late; None: all counts.
    """
    later = [at for seen, at in history.sights if seen > version and (since is None or at > since)]
    return min(later, default=history.served_at if since is None else math.inf)


def ahead_since(history: VersionHistory, facts: TrainerFacts) -> float | None:
    """Return since when the engine has been ahead of the trainer; None: it serves nothing newer than was published.

    From the first sight of a version newer than the latest published, and not before the trainer published anything.
    """
    served, published = history.version_served, facts.version_published
    if served is None or published is None or served <= published:
        return None
    return max(passed_at(history, published), facts.published[0].at)


def version_lag(history: VersionHistory, facts: TrainerFacts) -> int | None:
    """Return published - served; None where either is unknown, or the one served is newer."""
    served, published = history.version_served, facts.version_published
    if served is None or published is None or served > published:
        return None
    return published - served


def sync_seconds(history: VersionHistory, facts: TrainerFacts) -> float | None:
    """Return the seconds from the publishing of the version served to its first sight.

    None where the change did not happen under the probe's eyes, the publishing is not known, or was told after it.
    """
    published = _published_at(history, facts)
    if published is None or not history.saw_change or history.served_at < published:
        return None
    return history.served_at - published


def weight_age_seconds(history: VersionHistory, now: float, facts: TrainerFacts) -> float | None:
    """Return the age of the weights served: since their publishing, else since they were seen to come, else None."""
    published = _published_at(history, facts)
    if published is not None:
        return max(0.0, now - published)
    is_known = history.version_served is not None and history.saw_change
    return max(0.0, now - history.served_at) if is_known else None


def _published_at(history: VersionHistory, facts: TrainerFacts) -> float | None:
    version = history.version_served
    if version is None:
        return None
    return history.published_at if history.published_at is not None else facts.published_at(version)
