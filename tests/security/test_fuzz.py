"""A few damaged statements of each kind, the same in every run; `fuzz_statements.py` runs as many as you like."""

from __future__ import annotations

from fuzz_statements import corpus, fuzz


def test_only_errors_of_ours_come_out() -> None:
    outcomes, wrong = fuzz(600, seed=7)
    assert not wrong, wrong[0]
    assert outcomes["accepted"] > 20 and outcomes["ParseError"] > 100


def test_the_corpus_is_large() -> None:
    assert sum(len(golden.statements) for golden in corpus()) > 1000
