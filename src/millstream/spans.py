"""Traces for OpenTelemetry: a span for each statement, push and checkpoint. Without a tracer they cost a comparison."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("millstream.server")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_tracer: Any = None


def begin() -> None:
    """Send spans to the endpoint that the environment names, as OpenTelemetry defines these variables; if it names
    none, or the packages are not installed, there are no spans."""
    if not any(map(os.environ.get, _ENDPOINTS)):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log.warning("no traces: %s is not installed; pip install 'millstream[otel]'", error.name)
        return
    name = os.environ.get("OTEL_SERVICE_NAME", "millstream")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)


def use(provider: Any) -> None:
    """Make spans with the tracer of a provider; None: make none."""
    global _tracer
    _tracer = None if provider is None else provider.get_tracer("millstream")


@contextmanager
def span(name: str, **told: str | int | float) -> Iterator[None]:
    """What is done inside, as one span. An error that leaves it is recorded."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name, attributes={key.replace("__", "."): each for key, each in told.items()}):
        yield


@contextmanager
def caused_by(headers: Mapping[str, str]) -> Iterator[None]:
    """Spans inside belong to the trace that a request names in `traceparent`."""
    if _tracer is None or "traceparent" not in headers:
        yield
        return
    from opentelemetry import context
    from opentelemetry.propagate import extract

    token = context.attach(extract(headers))
    try:
        yield
    finally:
        context.detach(token)
