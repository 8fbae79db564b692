"""Every operation of the server's OpenAPI description, with a few random requests, by schemathesis."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.security.fuzz_server import DECLARED
from tests.server.conftest import TOKEN, ServerProcess

schemathesis = pytest.importorskip("schemathesis")

LEFT_OUT = {"POST /v1/finish": "it ends all input", "GET /v1/queries/{name}/rows": "it answers until the query ends"}
FEW = settings(
    max_examples=3, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def test_no_operation_fails_and_all_answers_are_described(tmp_path: Path) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import status_code_conformance

    server = ServerProcess(tmp_path / "kept")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answers: Counter[int] = Counter()
    tried: set[str] = set()
    try:
        db = server.client()
        db.execute(DECLARED)
        schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()
            name = f"{operation.method.upper()} {operation.path}"
            if name in LEFT_OUT:
                continue
            tried.add(name)

            @FEW
            @given(case=operation.as_strategy())
            def ask(case: Any) -> None:
                for there in (False, True):
                    if there and "name" in (case.path_parameters or {}):
                        # a stream or a query that exists
                        case.path_parameters["name"] = "s" if "/streams/" in case.path else "q"
                        db.sql("SELECT v, name FROM s", name="q", replace=True)
                    elif there:
                        break
                    answer = case.call(headers=headers, timeout=60)
                    case.validate_response(answer, checks=[not_a_server_error, status_code_conformance])
                    answers[answer.status_code] += 1

            ask()
        assert len(tried) == sum(len(methods) for methods in schema.raw_schema["paths"].values()) - len(LEFT_OUT) > 28
        assert db.execute("SELECT count(*) AS n FROM t").arrow()["n"].to_pylist()[0] >= 2
    finally:
        server.kill()
    assert answers[200] > 10 and answers[400] > 5 and answers[404] > 5
