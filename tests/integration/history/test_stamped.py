"""Stamps of what two sidecars write, in SQLite and in PostgreSQL."""

from __future__ import annotations

from satwatch.types import BatchesQuery, EventsQuery, RunsQuery, StepsQuery, VersionsQuery
from tests.unit.history.making import batch_seen, merged, opened, same, seen

QUERIES = (
    RunsQuery(),
    StepsQuery("r"),
    StepsQuery("r", max_points=3),
    BatchesQuery("r", 3),
    VersionsQuery("r"),
    EventsQuery("r"),
)


def test_a_stamp_stays_while_its_record_does_and_no_longer(write, read, url):
    writing, store = write(url), read(url)
    writing.put(opened(), *map(seen, range(12)), batch_seen(3))
    for late in ((), [seen(4, merged([4, 4]))], [seen(11, is_closed=False)], [seen(12)], [batch_seen(3, 1)]):
        before = {query: store.stamped(query) for query in QUERIES}
        records = {query: query.ask(store) for query in QUERIES}
        writing.put(*late)
        for query, found in before.items():
            after, asked = store.stamped(query), tuple(query.ask(store))
            assert same(tuple(each.read() for each in after), asked)
            known = {each.stamp: record for each, record in zip(found, records[query], strict=True)}
            for each, record in zip(after, asked, strict=True):
                # The same stamp says the same record, and another one that it has changed.
                assert same(known[each.stamp], record) if each.stamp in known else record not in records[query]
