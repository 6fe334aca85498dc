"""What a probe can be told: the ``[probe]`` table of the settings file, arguments above it, defaults below.

The names are API. Nothing here needs more than pydantic: a sidecar without a probe reads its settings too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from satwatch.probe.address import read_url

MAX_ENGINES: Final = 4096
ANY_SOURCE: Final = "engines, router or engines_file"

Url = Annotated[str, AfterValidator(read_url)]


class ProbeSettings(BaseModel):
    """Everything a probe can be told.

    Raises:
        pydantic.ValidationError: a value outside its range, a name that is no setting, or nothing to look at.

    >>> ProbeSettings(engines=("127.0.0.1:30000",)).engines
    ('http://127.0.0.1:30000',)
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    engines: tuple[Url, ...] = Field((), strict=False, max_length=MAX_ENGINES)
    """URLs of the engines to look at, each http, https or HOST:PORT."""

    router: Url | None = None
    """URL of an sglang-router, whose workers are looked at."""

    engines_file: Path | None = Field(None, strict=False)
    """A file of engine URLs, one a line, read again when it changes."""

    run: str = Field("", max_length=200)
    """The run that the engines generate for; empty: the only one there is."""

    period_seconds: float = Field(5.0, ge=0.05, le=3600, allow_inf_nan=False)
    """How often each engine is looked at."""

    timeout_seconds: float = Field(2.0, ge=0.05, le=600, allow_inf_nan=False)
    """How long a look may take, all of its requests together."""

    canary: bool = True
    """Whether canaries are scored: the proof that an engine serves the weights that it names."""

    canary_pulse_seconds: float = Field(300.0, ge=1, le=86_400, allow_inf_nan=False)
    """How often a canary is scored when no version changes."""

    canary_timeout_seconds: float = Field(10.0, ge=0.05, le=600, allow_inf_nan=False)
    """How long a canary may take."""

    canary_limit: float = Field(0.1, gt=0, le=100, allow_inf_nan=False)
    """The mean abs(log pi - log mu) of a canary, nats, above which weights that match no version are called wrong."""

    score_sleepers: bool = False
    """Whether engines with a memory saver are asked for canaries and checksums too; one asleep would end by it."""

    checksum: bool = True
    """Whether engines are asked for the checksum of their weights; only those that grant it answer."""

    max_load: float = Field(0.01, ge=0.0001, le=1, allow_inf_nan=False)
    """The largest share of an engine's time and of its requests that the probe takes."""

    max_engines: int = Field(256, ge=1, le=MAX_ENGINES)
    """The most engines looked at; those beyond it are left out."""

    api_key_file: Path | None = Field(None, strict=False)
    """A file with the engines' api key; without it SATWATCH_ENGINE_API_KEY."""

    admin_key_file: Path | None = Field(None, strict=False)
    """A file with the engines' admin key, sent for checksums only; without it SATWATCH_ENGINE_ADMIN_KEY."""

    @property
    def longest_round_seconds(self) -> float:
        """How long a round may take: one in which an engine hangs takes as long as two looks may."""
        return max(self.period_seconds, 2 * self.timeout_seconds)

    @model_validator(mode="after")
    def _check_source(self) -> ProbeSettings:
        if not self.engines and self.router is None and self.engines_file is None:
            raise ValueError(ANY_SOURCE)
        return self
