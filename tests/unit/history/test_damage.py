"""A row that can't be read is named in the refusal."""

from __future__ import annotations

import zlib

import pytest

from satwatch.errors import UnavailableError
from satwatch.history.damage import totals_in
from satwatch.sat.codec import encode_totals
from tests.unit.history.making import same, totals_of


def test_sums_come_back():
    assert same(totals_in(encode_totals(totals_of(1)), "life 1, level 0, block 1"), totals_of(1))


@pytest.mark.parametrize(("blob", "why"), [(b"garbage", "incorrect header check"), (zlib.compress(b"{}"), "'summary'")])
def test_damaged_bytes_are_refused_by_the_name_of_their_row_and_with_the_reason_once(blob, why):
    with pytest.raises(UnavailableError, match=r"^history: life 3, level 1, block 7: got bytes") as refused:
        totals_in(blob, "life 3, level 1, block 7")
    assert why in str(refused.value)
    assert str(refused.value).count("can't be read") == 1
