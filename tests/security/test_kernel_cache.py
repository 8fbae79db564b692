"""The cache of machine code: private to the user, and never one that others can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.kernels.jit import store

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners and modes of files")


@pytest.fixture(autouse=True)
def forget() -> None:
    for cached in (store._private, store._private_temporary, store._key):
        cached.cache_clear()


def test_the_directory_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    found = store.directory()
    assert found == (tmp_path / "cache").resolve() and found.stat().st_mode & 0o777 == 0o700
    store.fingerprint("x")
    assert (found / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    shared = tmp_path / "cache"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("MILLSTREAM_CACHE", str(shared))
    assert store.directory() != shared.resolve()
    assert store.directory().stat().st_mode & 0o077 == 0


def test_a_directory_below_one_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared" / "cache").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "shared" / "cache"))
    assert tmp_path not in store.directory().parents


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    assert store.directory() != (tmp_path / "cache").resolve()


def test_names_of_files_depend_on_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for place in ("a", "b", "a"):
        monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / place))
        names.add(store.fingerprint("def f(): pass"))
    assert len(names) == 2
