"""SQL reads no file, loads no code and reaches no other program: an attempt list, each refused with our own error."""

from __future__ import annotations

from pathlib import Path

import pytest

import millstream as ms
from millstream import sealed_duckdb
from millstream.hosts.tables import TableStore

FILES = [
    'SELECT * FROM "{folder}/f".csv',
    'SELECT * FROM "{folder}/f.csv"',
    "SELECT * FROM '{folder}/f.csv'",
    "SELECT * FROM read_csv('{folder}/f.csv')",
    "SELECT * FROM t, read_csv('{folder}/f.csv')",
    "SELECT (SELECT count(*) FROM read_text('{folder}/f.csv')) AS n FROM t",
    "WITH a AS (SELECT * FROM read_text('{folder}/f.csv')) SELECT * FROM a",
    "CREATE TABLE u AS SELECT * FROM read_csv('{folder}/f.csv')",
    "INSERT INTO t VALUES (7, (SELECT content FROM read_text('{folder}/f.csv')))",
    "INSERT INTO t SELECT 1, content FROM read_text('{folder}/f.csv')",
    "UPDATE t SET name = (SELECT content FROM read_text('{folder}/f.csv'))",
    "UPDATE t SET name = content FROM read_text('{folder}/f.csv')",
    "DELETE FROM t WHERE EXISTS (SELECT * FROM glob('{folder}/*'))",
    "DELETE FROM t USING glob('{folder}/*') AS g WHERE true",
    "INSERT INTO t SELECT 1, content FROM query('SELECT content FROM read_text(''{folder}/f.csv'')')",
    "UPDATE t SET name = (SELECT content FROM read_text('http://127.0.0.1:1/f'))",
    "INSERT INTO t VALUES (1, current_setting('home_directory'))",
    "SELECT s.v, (SELECT max(a) FROM read_csv('{folder}/f.csv')) AS m FROM s",
    "COPY t TO '{folder}/out.csv'",
    "ATTACH '{folder}/other.db' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "EXPORT DATABASE '{folder}'",
    "PRAGMA database_list",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM information_schema.tables",
]


@pytest.mark.parametrize("attempt", FILES)
def test_sql_is_refused_and_leaves_no_trace(tmp_path: Path, attempt: str) -> None:
    (tmp_path / "f.csv").write_text("a\n42\n")
    with ms.connect() as db:
        db.execute("CREATE TABLE csv (a int); CREATE TABLE t (i int, name varchar); INSERT INTO t VALUES (1, 'x')")
        db.execute("CREATE STREAM s (v int, at int) ORDER BY at")
        with pytest.raises(ms.MillstreamError):
            result = db.execute(attempt.format(folder=tmp_path))
            if result is not None:
                result.fetch()
        assert db.sql("SELECT * FROM t").fetch().to_pylist() == [{"i": 1, "name": "x"}]
    assert [path.name for path in tmp_path.iterdir()] == ["f.csv"]


@pytest.mark.parametrize(
    "option",
    [
        "kafka.plugin.library.paths = '/nowhere/p.so'",
        "kafka.sasl.kerberos.kinit.cmd = 'touch /nowhere'",
        "kafka.ssl.engine.location = '/nowhere/p.so'",
        "kafka.ssl.providers = 'legacy'",
        "kafka.sasl.oauthbearer.token.endpoint.url = 'http://127.0.0.1:1'",
    ],
)
def test_kafka_properties_load_no_code(option: str) -> None:
    with ms.connect() as db, pytest.raises(ms.MillstreamError, match="cannot be set from SQL"):
        db.execute(
            "CREATE STREAM k (a int, t int) ORDER BY t WITH "
            f"(connector = 'kafka', topic = 'x', brokers = '127.0.0.1:1', {option})"
        )


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('{folder}/f.csv')",
        "SELECT * FROM glob('{folder}/*')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "ATTACH '{folder}/other.db'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "INSTALL httpfs",
    ],
)
def test_the_table_store_itself_is_sealed(tmp_path: Path, statement: str) -> None:
    """Also where a statement came through unchecked."""
    (tmp_path / "f.csv").write_text("a\n42\n")
    store = TableStore(tmp_path / "tables.duckdb")
    with pytest.raises(ms.MillstreamError):
        store.change(statement.format(folder=tmp_path), frozenset())
    store.close()


def test_extensions_are_not_loaded_on_their_own() -> None:
    for borrows in (False, True):
        with sealed_duckdb.connect(borrows=borrows) as store:
            settings = dict(store.sql("SELECT name, value FROM duckdb_settings()").fetchall())
            assert settings["autoinstall_known_extensions"] == "false"
            assert settings["autoload_known_extensions"] == "false"
            assert settings["lock_configuration"] == "true"
