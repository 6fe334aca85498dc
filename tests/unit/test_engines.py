"""What engines say, decoded: real answers of SGLang 0.5.23, and everything that can be wrong with them."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.client.versions import read_version
from satwatch.engines import (
    logprobs_from_meta_info,
    read_label,
    routed_experts_from_sglang,
    routed_experts_from_vllm,
    routes,
    versions_from_meta_info,
    versions_per_token,
)
from satwatch.errors import InvalidBatchError
from satwatch.types import VersionRun

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "sglang"


def meta_info(name):
    return json.loads((FIXTURES / f"{name}.json").read_text())["meta_info"]


def runs(*pairs):
    return tuple(VersionRun(tokens, version) for tokens, version in pairs)


def span(version, start, end):
    return {"version": version, "start": start, "end": end}


def b64(ids, dtype="<i4"):
    return base64.b64encode(np.asarray(ids, dtype=dtype).tobytes()).decode()


def npy(ids, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(ids), **options)
    return base64.b64encode(file.getvalue()).decode()


class TestVersions:
    def test_an_update_in_flight_shows_as_two_spans(self):
        assert versions_from_meta_info(meta_info("generate_two_spans")) == runs((153, 7), (247, 8))

    def test_the_default_label_is_no_version(self):
        assert versions_from_meta_info(meta_info("generate")) == runs((5, None))

    @pytest.mark.parametrize(
        ("spans", "expected"),
        [
            ([span("3", 0, 10)], runs((10, 3))),
            ([span(3, 0, 4), span("3", 4, 10)], runs((10, 3))),
            ([span("3", 2, 4), span("4", 6, 9)], runs((2, None), (2, 3), (2, None), (3, 4), (1, None))),
            ([span("3", 0, 0), span("4", 0, 10), span("5", 10, 10)], runs((10, 4))),
            ([span("-1", 0, 5), span("default", 5, 10)], runs((10, None))),
            ([], runs((10, None))),
        ],
    )
    def test_spans_become_runs_and_what_they_leave_out_is_unknown(self, spans, expected):
        info = {"completion_tokens": 10, "weight_versions": spans, "weight_version": "9"}
        assert versions_from_meta_info(info) == expected

    def test_without_spans_the_label_is_the_last_tokens_alone(self):
        info = {"completion_tokens": 10, "weight_version": "9"}
        assert versions_from_meta_info(info) == runs((9, None), (1, 9))
        assert versions_from_meta_info(info, single_version=True) == runs((10, 9))

    def test_without_any_label_nothing_is_known(self):
        assert versions_from_meta_info({"completion_tokens": 10}) == runs((10, None))
        assert versions_from_meta_info({}, 10, single_version=True) == runs((10, None))

    def test_no_token_is_no_run(self):
        assert versions_from_meta_info({"completion_tokens": 0, "weight_version": "9"}) == ()

    def test_the_token_count_may_come_from_the_caller(self):
        assert versions_from_meta_info({"weight_versions": [span("3", 0, 4)]}, 4) == runs((4, 3))

    @pytest.mark.parametrize(
        ("info", "tokens", "message"),
        [
            ({"weight_versions": [span("3", 0, 4), span("4", 3, 9)]}, 10, r"\[1\].start: got 3, required 4 or more"),
            ({"weight_versions": [span("3", 4, 9), span("4", 0, 4)]}, 10, r"\[1\].start: got 0, required 9 or more"),
            ({"weight_versions": [span("3", 0, 11)]}, 10, r"\[0\].end: got 11, required a whole number, 0 to 10"),
            ({"weight_versions": [span("3", -1, 4)]}, 10, r"\[0\].start: got -1"),
            ({"weight_versions": [span("3", 5, 4)]}, 10, r"\[0\].end: got 4, required a whole number, 5 to 10"),
            ({"weight_versions": [span("3", 0.0, 4)]}, 10, r"\[0\].start: got 0.0"),
            ({"weight_versions": [span(True, 0, 4)]}, 10, r"\[0\].version: got True \(bool\)"),
            ({"weight_versions": [span(2**70, 0, 4)]}, 10, r"\[0\].version: got \d+, required at most"),
            ({"weight_versions": [span(10**5000, 0, 4)]}, 10, r"\[0\].version: got int, required at most"),
            ({"weight_versions": [{"version": "3"}]}, 10, r"\[0\].start: got None"),
            ({"weight_versions": ["3"]}, 10, r"meta_info.weight_versions\[0\]: got str, required a JSON object"),
            ({"weight_versions": "3"}, 10, "meta_info.weight_versions: got str, required a list"),
            ({"weight_version": 3.5}, 10, "meta_info.weight_version: got 3.5"),
            ({"completion_tokens": 9}, 10, "tokens: got 10, required 9, meta_info.completion_tokens"),
            ({"completion_tokens": "9"}, None, "meta_info.completion_tokens: got '9'"),
            ({}, None, "meta_info.completion_tokens: got nothing"),
            ([], 1, "meta_info: got list, required a JSON object"),
        ],
    )
    def test_what_sglang_does_not_send_is_refused(self, info, tokens, message):
        with pytest.raises(InvalidBatchError, match=message):
            versions_from_meta_info(info, tokens)

    @given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["1", 2, "default", None]), st.integers(0, 4))))
    def test_any_spans_in_order_say_of_each_token_what_they_say(self, parts):
        truth, spans = [], []
        for gap, label, length in parts:
            truth += [None] * gap
            spans.append(span(label, len(truth), len(truth) + length))
            truth += [{"1": 1, 2: 2}.get(label)] * length
        found = versions_from_meta_info({"completion_tokens": len(truth), "weight_versions": spans})
        assert versions_per_token(found) == truth
        assert all(run.tokens > 0 for run in found)
        assert all(a.version != b.version for a, b in itertools.pairwise(found))

    @pytest.mark.parametrize(
        "label", [7, "7", "007", "+7", "-7", -7, 0, "0", "default", "", " 7", "7\n", "\u0667", "9" * 31, "9" * 40, None]
    )
    def test_a_label_reads_as_the_client_reads_it(self, label):
        def outcome(read):
            try:
                return read("v", label)
            except InvalidBatchError:
                return "refused"

        assert outcome(read_label) == outcome(read_version)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["version", "start", "end"]), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["completion_tokens", "weight_version", "weight_versions", "output_token_logprobs"]),
        json_values,
    )
)
def test_any_json_is_read_or_refused_by_name(info):
    for read in (versions_from_meta_info, logprobs_from_meta_info):
        try:
            read(info)
        except InvalidBatchError as error:
            assert str(error).startswith("meta_info")


class TestLogprobs:
    def test_output(self):
        logprobs, ids = logprobs_from_meta_info(meta_info("generate"))
        assert ids.tolist() == [478, 111, 431, 137, 383]
        assert (logprobs.dtype, ids.dtype) == (np.float64, np.int64)
        assert logprobs[0] == -3.036464214324951

    def test_the_first_input_token_has_none(self):
        logprobs, ids = logprobs_from_meta_info(meta_info("generate"), "input")
        assert ids.tolist() == [262, 317, 311, 314]
        assert math.isnan(logprobs[0])
        assert logprobs[1:].tolist() == [-7.147904396057129, -8.024036407470703, -6.754528999328613]

    def test_no_token_is_an_empty_array(self):
        logprobs, ids = logprobs_from_meta_info(meta_info("generate_two_spans"), "input")
        assert (logprobs.shape, ids.shape) == ((0,), (0,))

    def test_what_is_not_finite_stays(self):
        logprobs, _ = logprobs_from_meta_info(
            json.loads('{"output_token_logprobs": [[-Infinity, 1, ""], [NaN, 2, ""]]}')
        )
        assert logprobs[0] == -math.inf
        assert math.isnan(logprobs[1])

    @pytest.mark.parametrize(
        ("entries", "message"),
        [
            (None, "output_token_logprobs: got nothing, required log-probs: the request needs return_logprob"),
            ({}, "output_token_logprobs: got dict, required a list"),
            ([[-1.0]], r"output_token_logprobs\[0\]: got 1 values"),
            ([[-1.0, 3, ""], -2.0], r"output_token_logprobs\[1\]: got float"),
            ([["-1", 3, ""]], r"output_token_logprobs\[0\]\[0\]: got '-1'"),
            ([[True, 3, ""]], r"output_token_logprobs\[0\]\[0\]: got True"),
            ([[-(10**400), 3, ""]], r"output_token_logprobs\[0\]\[0\]: got -1000"),
            ([[-1.0, None, ""]], r"output_token_logprobs\[0\]\[1\]: got None"),
            ([[-1.0, -3, ""]], r"output_token_logprobs\[0\]\[1\]: got -3"),
            ([[-1.0, 2**64, ""]], r"output_token_logprobs\[0\]\[1\]: got 18446744073709551616"),
        ],
    )
    def test_other_entries_are_refused(self, entries, message):
        with pytest.raises(InvalidBatchError, match=message):
            logprobs_from_meta_info({"output_token_logprobs": entries})

    def test_there_are_two_sides(self):
        with pytest.raises(InvalidBatchError, match="which: got 'prompt', required one of output, input"):
            logprobs_from_meta_info({}, "prompt")


class TestSglangRoutes:
    def test_a_real_answer(self):
        info = meta_info("generate_routed_experts")
        tokens = info["prompt_tokens"] + info["completion_tokens"]
        ids = routed_experts_from_sglang(info["routed_experts"], layers=2, top_k=2, tokens=tokens, num_experts=8)
        assert (ids.shape, ids.dtype) == ((7, 2, 2), np.int32)
        assert ids[1].tolist() == [[6, 1], [4, 7]]
        assert (ids[-1] == -1).all()
        assert ids[:-1].min() >= 0

    def test_without_a_count_the_rows_that_came(self):
        ids = routed_experts_from_sglang(b64([[[1, 2]], [[3, 0]]]).encode(), layers=1, top_k=2)
        assert ids.tolist() == [[[1, 2]], [[3, 0]]]
        ids[0] = 5  # the caller's own: not a view of the answer's bytes

    def test_a_row_for_the_last_token_is_taken(self):
        assert routed_experts_from_sglang(b64([[[1, 2]]]), layers=1, top_k=2, tokens=1).tolist() == [[[1, 2]]]

    def test_rows_before_the_start_are_missing(self):
        ids = routed_experts_from_sglang(b64([[[1, 2]]]), layers=1, top_k=2, tokens=4, start=2)
        assert ids[:, 0].tolist() == [[-1, -1], [-1, -1], [1, 2], [-1, -1]]
        assert routed_experts_from_sglang(b64([[[1, 2]]]), layers=1, top_k=2, start=2).tolist() == ids.tolist()

    def test_one_token_has_no_row(self):
        assert routed_experts_from_sglang("", layers=1, top_k=2, tokens=1).tolist() == [[[-1, -1]]]
        assert routed_experts_from_sglang("", layers=1, top_k=2, tokens=0).shape == (0, 1, 2)

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            (b64([1, 2, 3]), {}, "routed_experts: got 12 bytes, required a multiple of 8, 1 layers of 2 experts"),
            (b64([1, 2])[:-3], {}, "routed_experts: got 9 characters"),
            ("****", {}, "routed_experts: got 4 characters"),
            ("é", {}, "routed_experts: got 1 characters"),
            (None, {}, "routed_experts: got NoneType, required base64 text"),
            (b64([1, 2, 3, 4]), {"tokens": 7}, "routed_experts: got 2 rows, required 6: 7 tokens without the last one"),
            (b64([1, 2, 3, 4]), {"tokens": 7, "start": 2}, "required 4: 7 tokens without the last one, from 2 on"),
            (b64([1, 2, 3, 4]), {"tokens": 1}, "routed_experts: got 2 rows, required 0"),
            (b64([1, 2]), {"tokens": 4, "start": 5}, "start: got 5, required at most 4, the tokens"),
            (b64([1, 2]), {"start": -1}, "start: got -1"),
            ("", {"start": 2**40}, "tokens: got 1099511627777, required routes of at most"),
            (b64([1, 2]), {"tokens": "2"}, "tokens: got '2'"),
            (b64([1, 8]), {"num_experts": 8}, "routed_experts: got expert 8, required 0 to 7"),
            (b64([1, -2]), {}, "routed_experts: got expert -2, required 0 or more"),
            (b64([1, 2]), {"layers": 0}, "layers: got 0"),
            (b64([1, 2]), {"top_k": 2.0}, "top_k: got 2.0"),
        ],
    )
    def test_what_is_malformed_is_refused(self, text, options, message):
        with pytest.raises(InvalidBatchError, match=message):
            routed_experts_from_sglang(text, **{"layers": 1, "top_k": 2, **options})

    def test_text_beyond_the_limit_is_not_decoded(self, monkeypatch):
        monkeypatch.setattr(routes, "MAX_BYTES", 30)
        with pytest.raises(InvalidBatchError, match="routed_experts: got 64 characters, required at most 30 bytes"):
            routed_experts_from_sglang(b64(range(12)), layers=1, top_k=2)


class TestVllmRoutes:
    @pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, ">i2", np.int32, np.uint32, np.int64])
    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("version", [(1, 0), (2, 0)])
    def test_every_width_and_order(self, dtype, order, version):
        given_ids = np.array([[[1, 2], [3, 0]], [[5, 4], [2, 6]], [[0, 7], [1, 5]]], dtype=dtype, order=order)
        ids = routed_experts_from_vllm(npy(given_ids, version=version), num_experts=8)
        assert ids.tolist() == given_ids.tolist()
        assert ids.dtype == np.dtype(dtype).newbyteorder("=")

    def test_the_missing_last_token_needs_a_signed_dtype(self):
        ids = routed_experts_from_vllm(npy(np.array([[[1, 200]]], dtype=np.uint8)), tokens=2)
        assert ids.tolist() == [[[1, 200]], [[-1, -1]]]

    def test_an_id_that_overflowed_on_its_way_is_refused_by_its_dtype(self):
        sent = np.array([[[300, 7]]])
        arrived = sent.astype(np.uint8)
        assert arrived.tolist() == [[[44, 7]]]
        with pytest.raises(
            InvalidBatchError, match=r"routed_experts.dtype: got uint8, required one that holds expert 511"
        ):
            routed_experts_from_vllm(npy(arrived), num_experts=512)

    def test_a_pickle_is_never_read(self):
        class Bomb:
            def __reduce__(self):
                return pytest.fail, ("a pickle was loaded",)

        for content in (pickle.dumps(Bomb()), base64.b64decode(npy(np.array([[[None]]]), allow_pickle=True))):
            with pytest.raises(InvalidBatchError, match=r"an \.npy file|one of integers"):
                routed_experts_from_vllm(base64.b64encode(content))

    @pytest.mark.parametrize(
        ("ids", "message"),
        [
            (np.zeros((2, 2), np.int32), "one of integers in three dimensions"),
            (np.zeros((2, 2, 2), np.float32), "one of integers in three dimensions"),
            (np.zeros((2, 2, 2), bool), "one of integers in three dimensions"),
            (np.zeros((2, 2, 2), np.uint64), "one of integers in three dimensions"),
            (np.zeros((2, 0, 2), np.int32), "0 bytes of ids"),
            (np.full((2, 1, 2), 9, np.int32), "expert 9, required 0 to 7"),
            (np.full((2, 1, 2), -2, np.int32), "expert -2"),
        ],
    )
    def test_other_arrays_are_refused(self, ids, message):
        with pytest.raises(InvalidBatchError, match=message):
            routed_experts_from_vllm(npy(ids), num_experts=8)

    def test_a_shape_that_its_bytes_do_not_fill_allocates_nothing(self):
        header = b"{'descr': '<i4', 'fortran_order': False, 'shape': (999999999999, 999999999999, 999999999999), }\n"
        content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\x00" * 8
        with pytest.raises(InvalidBatchError, match="routed_experts: got 8 bytes of ids"):
            routed_experts_from_vllm(base64.b64encode(content))

    @given(st.binary(max_size=200), st.booleans())
    def test_any_bytes_are_read_or_refused(self, data, with_magic):
        content = (b"\x93NUMPY\x01\x00" if with_magic else b"") + data
        with pytest.raises(InvalidBatchError, match="routed_experts"):
            routed_experts_from_vllm(base64.b64encode(content))

    @given(st.data())
    def test_any_byte_of_a_good_file_may_be_wrong(self, data):
        good = base64.b64decode(npy(np.arange(12, dtype=np.int16).reshape(3, 2, 2)))
        at = data.draw(st.integers(0, len(good) - 1))
        bad = good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :]
        try:
            assert routed_experts_from_vllm(base64.b64encode(bad)).ndim == 3
        except InvalidBatchError as error:
            assert "routed_experts" in str(error)


@given(st.one_of(st.text(), st.binary()), st.integers(-1, 3), st.integers(-1, 3), st.none() | st.integers(-1, 5))
def test_any_text_is_read_or_refused(text, layers, top_k, tokens):
    for read in (
        lambda: routed_experts_from_sglang(text, layers=layers, top_k=top_k, tokens=tokens),
        lambda: routed_experts_from_vllm(text, tokens=tokens),
    ):
        try:
            ids = read()
        except InvalidBatchError:
            continue
        assert ids.shape[1:] == (layers, top_k)
        assert tokens is None or len(ids) == tokens
