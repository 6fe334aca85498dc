"""The metrics page: few families, each batch counted once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.probe.http.exposition import Exposition, histogram
from satwatch.probe.snapshot import Total

A = "sglang:num_running_reqs"


def of(*lines: str, names: tuple[str, ...] = (A, *histogram("q"))) -> Exposition:
    return Exposition("\n".join(lines).encode(), names)


def test_ranks_that_share_a_batch_count_once_and_data_parallel_ranks_add_up():
    page = of(
        f'{A}{{dp_rank="0",tp_rank="1",pp_rank="0"}} 3.0',
        f'{A}{{dp_rank="0",tp_rank="0",pp_rank="0"}} 4.0',
        f'{A}{{dp_rank="0",tp_rank="0",pp_rank="1"}} 9.0',
        # With attention in data parallel the tensor ranks go on counting.
        f'{A}{{dp_rank="1",tp_rank="3",pp_rank="0"}} 6.0',
        f'{A}{{dp_rank="1",tp_rank="2",pp_rank="0"}} 5.0',
    )
    assert page.sum(A) == 9.0
    assert page.count(A) == 9
    assert page.highest(A) == 5.0


def test_tensor_ranks_are_ordered_as_numbers():
    page = of(f'{A}{{tp_rank="10"}} 1.0', f'{A}{{tp_rank="9"}} 2.0')
    assert page.sum(A) == 2.0


def test_a_name_that_is_not_there_is_unknown_and_a_label_that_has_no_sample_yet_is_zero():
    page = of(f'{A}{{endpoint="/a"}} 3.0')
    assert page.sum("other") is None
    assert page.total("q") is None
    assert page.highest("other") is None
    assert page.sum(A, where={"endpoint": ("/generate",)}) == 0.0


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e400"])
def test_a_rank_without_a_meaningful_value_makes_the_sum_unknown(value):
    page = of(f'{A}{{dp_rank="0"}} 3.0', f'{A}{{dp_rank="1"}} {value}')
    assert page.sum(A) is None
    assert page.highest(A) == 3.0


def test_the_first_name_that_is_there_is_taken():
    page = of("q_sum 2.0", "q_count 4", f"{A} 1")
    assert page.sum("older", A) == 1.0
    assert page.total("newer", "q") == Total(2.0, 4.0)


def test_half_a_histogram_is_unknown():
    assert of("q_sum 2.0").total("q") is None


def test_a_line_that_cannot_be_read_costs_no_other():
    page = of(f"{A}{{ 1.0", f"{A} nonsense", f'{A}{{a="b}} 2', "\x00\xff", f'{A}{{a="b"}} 7.0')
    assert page.sum(A) == 7.0


def test_what_begins_like_a_name_is_another():
    assert of(f"{A}_bucket 3", f"{A}x 4").sum(A) is None


def test_a_huge_page_is_filtered_before_it_is_parsed(monkeypatch):
    parsed = []
    real = "satwatch.probe.http.exposition.text_string_to_metric_families"
    from satwatch.probe.http import exposition

    parse = exposition.text_string_to_metric_families
    monkeypatch.setattr(real, lambda line: parsed.append(line) or parse(line))
    page = of(*(f'other{{i="{i}"}} 1.0' for i in range(50_000)), f"{A} 2.0")
    assert page.sum(A) == 2.0
    assert parsed == [f"{A} 2.0\n"]


@pytest.mark.parametrize(
    "page",
    [
        "\n" * 4_000_000,
        f'{A}{{a="{"x" * 5000}"}} 1.0',
        "\n".join(f'{A}{{i="{i}"}} 1.0' for i in range(5000)),
        "\n".join(f'{A}{{i="{i}{"x" * 3000}"}} 1.0' for i in range(400)),
    ],
    ids=["empty lines", "a long line", "many lines", "many bytes"],
)
def test_a_page_of_more_than_can_be_meant_is_unknown_and_not_parsed(page, monkeypatch):
    parser = "satwatch.probe.http.exposition.text_string_to_metric_families"
    monkeypatch.setattr(parser, lambda _: pytest.fail("parsed"))
    assert of(page).sum(A) is None


@given(st.binary(max_size=200), st.text(max_size=50), st.text(max_size=10))
def test_no_page_raises(rubbish, labels, value):
    page = Exposition(rubbish + f"\n{A}{{{labels}}} {value}\n{A} {value}\n".encode(errors="replace"), (A,))
    for found in (page.sum(A), page.highest(A)):
        assert found is None or found >= 0
