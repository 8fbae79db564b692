"""A server on loopback, as users start it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millstream as ms

TOKEN = "a secret token"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class ServerProcess:
    """`millstream serve` over one directory; it can be killed and started again."""

    def __init__(
        self, directory: Path, accounts: bool = True, engine: str = "embedded", tls: tuple[Path, Path] | None = None
    ) -> None:
        self._accounts, self._tls = accounts, tls
        self._engine = engine
        self.port, self.postgres = _free_port(), _free_port()
        self.python = sys.executable
        self.address = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self.directory = directory
        self.backups = directory.parent / "backups"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "millstream", "serve", "--engine", self._engine]
        command += [str(self.directory)] if self._engine == "embedded" else []  # on Spark nothing is kept
        command += ["--port", str(self.port), "--postgres", str(self.postgres)]
        self.backups.mkdir(exist_ok=True, parents=True)
        command += ["--location", f"backups={self.backups}"]
        command += [] if self._accounts else ["--no-token"]
        command += (
            []
            if self._tls is None
            else ["--certificate", str(self._tls[0]), "--key", str(self._tls[1]), "--log", "json"]
        )
        secret = {"MILLSTREAM_TOKEN": TOKEN} if self._accounts else {}
        self._process = subprocess.Popen(command, env={**os.environ, **secret})

    def client(self, token: str | None = TOKEN, patience: float = 60) -> Any:
        until = time.monotonic() + patience
        while True:
            try:
                return ms.connect(self.address, token=token)
            except ms.ConnectorError:
                assert self._process.poll() is None and time.monotonic() < until
                time.sleep(0.1)

    def conninfo(self, user: str = "admin", password: str = TOKEN) -> str:
        """How clients of PostgreSQL connect."""
        self.client()  # it is there
        return f"host=127.0.0.1 port={self.postgres} user={user} password='{password}' dbname=millstream"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """Ask it to end, as an operator does."""
        self.ask_to_end()
        return self.ended()

    def ask_to_end(self) -> None:
        self._process.terminate()

    def ended(self) -> int:
        return self._process.wait(60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path / "kept")
    yield running
    running.kill()
