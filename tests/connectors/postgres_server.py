"""A real PostgreSQL server of the tests' own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def _program(name: str) -> str:
    places = [*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True), os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        pytest.skip(f"no {name}: PostgreSQL is not installed")
    return found


class Server:
    """It can be stopped and started."""

    def __init__(self, home: Path, port: int, user: str | None) -> None:
        self.home, self.port, self._user = home, port, user
        self.url = f"postgresql://tester:pass@127.0.0.1:{port}/postgres"
        self.run("initdb", "-D", str(home / "data"), "-U", "tester", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        self.start()

    def run(self, program: str, *arguments: str) -> None:
        command = [_program(program), *arguments]
        subprocess.run(command, check=True, user=self._user, cwd=self.home, stdout=subprocess.DEVNULL, timeout=120)

    def start(self) -> None:
        settings = f"-p {self.port} -k {self.home} -c fsync=off -c wal_level=logical -c listen_addresses=127.0.0.1"
        self.run("pg_ctl", "-D", str(self.home / "data"), "-l", str(self.home / "log"), "-w", "-o", settings, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", str(self.home / "data"), "-w", "-m", "fast", "stop")

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="the package psycopg is not installed")
    home, user = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp")), None
    try:
        if os.geteuid() == 0:
            # PostgreSQL does not run as root
            user = "postgres"
            try:
                shutil.chown(home, user)
            except LookupError:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = int(taken.getsockname()[1])
        server = Server(home, port, user)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
