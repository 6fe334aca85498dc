"""Which stored life each of the server's lives is, and what of it changes in a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from satwatch.history.records import LifeKey, LifeOpened
from satwatch.history.schema import LIVES_LOCK, Row, lives, one_at_a_time
from satwatch.history.shown import rule_out

# Lives that are remembered; the one opened longest ago is forgotten first.
_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class Life:
    """A row of the lives, as far as a transaction changes it."""

    life: int
    rule: str
    world_size: int
    last_at: float
    first_step: int | None = None
    last_step: int | None = None
    stored_step: int | None = None
    steps: int = 0
    batches: int = 0
    tokens: int = 0
    version_published: int | None = None
    ended_at: float | None = None

    def heard(self, at: float) -> None:
        """Note a message."""
        self.last_at = max(self.last_at, float(at))

    def trained(self, at: float) -> None:
        """Note a message of a step; after an end that another sidecar's ranks have made, it goes on here."""
        self.heard(at)
        if self.ended_at is not None and at > self.ended_at:
            self.ended_at = None

    def opened(self, opening: LifeOpened) -> None:
        """Note what it was opened with."""
        self.rule, self.world_size, self.ended_at = rule_out(opening.rule), opening.world_size, None
        self.heard(opening.at)

    def ended(self, at: float) -> None:
        """Note that its trainer has closed it."""
        self.ended_at = float(at)

    def save(self, connection: sa.Connection) -> None:
        """Write the row."""
        changed = {name: getattr(self, name) for name in Life.__slots__ if name != "life"}
        connection.execute(sa.update(lives).where(lives.c.life == self.life).values(changed))


class LifeBook:
    """The lives that were opened here. What a transaction finds out holds once it is committed: :meth:`settle`."""

    def __init__(self, writer: int) -> None:
        """Make an empty book of the process with this number."""
        self._writer = writer
        self._openings: dict[LifeKey, tuple[LifeOpened, int]] = {}
        self._lives: dict[LifeKey, int] = {}

    def remember(self, opening: LifeOpened, ordinal: int) -> None:
        """Note an opening, and its number among all records of this process."""
        _, first = self._openings.pop(opening.key, (opening, ordinal))
        self._openings[opening.key] = (opening, first)
        while len(self._openings) > _REMEMBERED:
            oldest = next(iter(self._openings))
            del self._openings[oldest]
            self._lives.pop(oldest, None)

    def life(self, key: LifeKey) -> int | None:
        """Return the stored life of a key; None before it is stored."""
        return self._lives.get(key)

    def settle(self, found: Mapping[LifeKey, Life]) -> None:
        """Keep what a committed transaction has found."""
        self._lives.update({key: life.life for key, life in found.items()})

    def find(self, connection: sa.Connection, keys: Iterable[LifeKey]) -> dict[LifeKey, Life]:
        """Return the rows of lives, made where there are none; a key that was never opened has none."""
        known = {key: self._lives[key] for key in keys if key in self._lives}
        rows = self._rows(connection, known.values())
        found: dict[LifeKey, Life] = {}
        for key in keys:
            if key not in self._openings:
                continue
            life = rows.get(known.get(key, 0))
            if life is None:  # new here, or removed because so many came after it
                one_at_a_time(connection, LIVES_LOCK)  # two sidecars that open one life make one of it
                life = self._continued(connection, key, rows) or self._made(connection, key)
                rows[life.life] = life
            found[key] = life
        return found

    def _rows(self, connection: sa.Connection, numbers: Iterable[int]) -> dict[int, Life]:
        query = _locked().where(lives.c.life.in_(sorted(set(numbers))))
        return {row.life: _life(row) for row in connection.execute(query)}

    def _continued(self, connection: sa.Connection, key: LifeKey, rows: Mapping[int, Life]) -> Life | None:
        opening, ordinal = self._openings[key]
        made_here = lives.c.opened_by == self._token(ordinal)
        same = sa.and_(lives.c.run == opening.run, lives.c.incarnation == opening.incarnation)
        wanted = sa.or_(made_here, same) if opening.incarnation else made_here
        row = connection.execute(_locked().where(wanted).order_by(lives.c.life.desc()).limit(1)).first()
        return None if row is None else rows.get(row.life) or _life(row)

    def _made(self, connection: sa.Connection, key: LifeKey) -> Life:
        opening, ordinal = self._openings[key]
        life = Life(0, rule_out(opening.rule), opening.world_size, float(opening.at))
        row = {name: getattr(life, name) for name in Life.__slots__ if name != "life"}
        named = {"run": opening.run, "incarnation": opening.incarnation, "opened_at": float(opening.at)}
        made = connection.execute(sa.insert(lives).values(row | named | {"opened_by": self._token(ordinal)}))
        assert made.inserted_primary_key is not None
        life.life = made.inserted_primary_key[0]
        return life

    def _token(self, ordinal: int) -> str:
        return f"{self._writer:016x}:{ordinal}"


def lock_life(connection: sa.Connection, life: int) -> Life | None:
    """Return a life that no other transaction may change before this one ends."""
    row = connection.execute(_locked().where(lives.c.life == life)).first()
    return None if row is None else _life(row)


def _locked() -> sa.Select[Any]:
    return sa.select(*(lives.c[name] for name in Life.__slots__)).with_for_update()


def _life(row: Row) -> Life:
    return Life(**row._mapping)
