"""Traces: statements, pushes and checkpoints are spans, and errors are recorded in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import millstream as ms
from millstream import spans
from millstream.server.access import Caller, Clients
from millstream.server.accounts import Account


@pytest.fixture
def seen() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.use(provider)
    yield exporter
    spans.use(None)


def test_statements_pushes_and_checkpoints_are_spans(tmp_path: Path, seen: InMemorySpanExporter) -> None:
    client = Caller(Account("ann", "writer"), "here", Clients())
    with ms.connect(tmp_path / "state") as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        seen.clear()
        parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        with spans.caused_by(parent), client.at_work(db, "SELECT v FROM s"):
            db.execute("SELECT v FROM s")
        client.push(db, "s", [(1, 1)])
        with pytest.raises(ms.BindError), client.at_work(db, "SELECT 1 FROM nothing"):
            db.execute("SELECT 1 FROM nothing")
        db.checkpoint()
        found: tuple[ReadableSpan, ...] = seen.get_finished_spans()
    assert [each.name for each in found] == ["statement", "push", "statement", "checkpoint"]
    first, push, failed, _ = found
    assert first.attributes == {"db.query.text": "SELECT v FROM s", "enduser.id": "ann"}
    assert first.parent is not None and first.parent.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert push.attributes == {"stream": "s", "enduser.id": "ann"} and push.status.is_unset
    assert not failed.status.is_ok and failed.events[0].name == "exception"


def test_there_are_none_unless_an_endpoint_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    spans.begin()
    assert spans._tracer is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING):
        spans.begin()
    assert spans._tracer is None and "millstream[otel]" in caplog.text
