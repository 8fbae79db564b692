"""The shell on the session of a server."""

from __future__ import annotations

import os
import subprocess

from tests.server.conftest import TOKEN, ServerProcess

SCRIPT = r"""
CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, t INT) ORDER BY t;
SELECT symbol, price FROM quotes WHERE price > 100;
\push quotes {"symbol": "ACME", "price": 120.5, "t": 1} ["B", 1, 2]
\push quotes ["late", 1, 0]
\fetch
\d
\d quotes
\d q1
CREATE VIEW held AS SELECT count(*) AS held_rows FROM quotes [RANGE 10];
\advance quotes 3
\push quotes ["C", 2, 4]
\snapshot held
\run
SELECT nothing FROM quotes;
\d nobody
EXPLAIN SELECT symbol FROM quotes;
"""


def shell(server: ServerProcess, script: str, *options: str, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
    command = [server.python, "-m", "millstream", "shell", *options]
    environment = {**os.environ, "MILLSTREAM_TOKEN": token}
    return subprocess.run(command, input=script, env=environment, capture_output=True, text=True, timeout=60)


def test_statements_and_commands_work_on_a_server(server: ServerProcess) -> None:
    server.client()
    done = shell(server, SCRIPT, "--connect", server.address)
    told, wrong = done.stdout, done.stderr
    assert "query q1 is running" in told and "ACME" in told and "120.5" in told
    assert "0 accepted, 1 late" in told
    for part in ("stream", "symbol VARCHAR, price DOUBLE, t INTEGER", "query q1", "held_rows", "Scan quotes"):
        assert part in told, part
    assert "reads its sources by itself" in wrong and "nothing is named nobody" in wrong
    assert "no column nothing" in wrong and "^^^" in wrong
    assert done.returncode == 1
    assert [query.name for query in server.client().queries()] == ["q1", "held"]
    again = shell(server, "SHOW QUERIES;", "--connect", server.address)
    assert (again.returncode, again.stderr) == (0, "") and "q1" in again.stdout
    refused = shell(server, "SHOW QUERIES;", "--connect", server.address, token="wrong token")
    assert refused.returncode != 0 and "token" in refused.stderr
    assert "the server has its own" in shell(server, "", "dir", "--connect", server.address).stderr
