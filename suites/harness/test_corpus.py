"""The corpus: real text by default, files on request, content that follows from the seed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.corpus import Corpus, load_corpus
from harness.errors import UsageError
from suites.harness import fakes


def test_the_built_in_text_is_real_and_loads_in_two_seconds() -> None:
    before = time.process_time()
    corpus = load_corpus(None)
    assert time.process_time() - before < 2.0
    described = corpus.to_json()
    assert described["name"] == "built-in"
    assert described["tokenizer_vocabulary"] == corpus.vocab_size >= 128_000
    assert 100 <= described["samples"] <= 400
    assert described["tokens"] == sum(len(sample.tokens) for sample in corpus.samples)
    assert max(token for sample in corpus.samples for token in sample.tokens) > 512
    lengths = corpus.natural_lengths(at_most=66)
    assert len(lengths) > 20
    assert lengths == tuple(sorted(set(lengths)))
    assert lengths[-1] <= 66


def test_a_file_of_samples_is_read_and_thinned_out(tmp_path: Path) -> None:
    records = [{"instruction": f"Say {number}.", "input": "", "output": f"{number}!"} for number in range(1001)]
    file = tmp_path / "demo.json"
    file.write_text(json.dumps(records), encoding="utf-8")
    corpus = load_corpus(file)
    assert corpus.name == "demo.json"
    assert len(corpus.samples) == 334
    assert all(any(sample.supervised) and not all(sample.supervised) for sample in corpus.samples)


@pytest.mark.parametrize(("name", "content"), [("a.json", "{"), ("a.json", "[]"), ("a.jsonl", ""), ("a.csv", "x")])
def test_a_file_without_samples_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        load_corpus(tmp_path / name)


def test_no_text_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="no tokens"):
        Corpus("empty", (fakes.Text((), ()),), 10)


def test_text_flows_on_into_the_next_samples() -> None:
    corpus = fakes.corpus()
    tokens, flags = corpus.text(3, 0, length=200)
    assert len(tokens) == len(flags) == 200
    once = [token for sample in corpus.samples for token in sample.tokens]
    cycle = once * 4
    starts = [start for start in range(len(once)) if cycle[start : start + 200] == tokens]
    assert starts, "the tokens are not a stretch of the samples laid one after another"
    again = [flag for sample in corpus.samples for flag in sample.supervised] * 4
    assert again[starts[0] : starts[0] + 200] == flags


def test_samples_and_seeds_get_different_text() -> None:
    corpus = fakes.corpus()
    texts = {tuple(corpus.text(seed, index, length=30)[0]) for seed in range(8) for index in range(4)}
    assert len(texts) > 20


def test_the_digest_sees_tokens_and_flags() -> None:
    corpus = fakes.corpus()
    sample = corpus.samples[0]
    other_token = fakes.Text((sample.tokens[0] + 1, *sample.tokens[1:]), sample.supervised)
    other_flag = fakes.Text(sample.tokens, (not sample.supervised[0], *sample.supervised[1:]))
    digests = {corpus.digest}
    for changed in (other_token, other_flag):
        digests.add(replace(corpus, samples=(changed, *corpus.samples[1:])).digest)
    assert len(digests) == 3
    assert fakes.corpus().digest == corpus.digest


def test_the_padding_id_is_the_most_frequent_one() -> None:
    corpus = Corpus("three", (fakes.Text((5, 7, 7), (True,) * 3), fakes.Text((5, 9), (True,) * 2)), 10)
    assert corpus.frequent_token == 5
