"""SQL reads no file, loads no code and reaches no other program: an attempt list, each refused with our own error."""

from __future__ import annotations

from pathlib import Path

import pytest

import millstream as ms
from millstream import sealed_duckdb
from millstream.hosts.tables import TableStore

TABLES = """
CREATE TABLE csv (a int); CREATE TABLE t (i int, name varchar); INSERT INTO t VALUES (1, 'x');
CREATE STREAM s (v int, at int) ORDER BY at
"""

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


PLACES = [
    "SELECT {call} AS x FROM t",
    "SELECT * FROM t WHERE {call} IS NOT NULL",
    "SELECT i FROM t GROUP BY i, {call}",
    "SELECT i FROM t GROUP BY i HAVING max({call}) IS NULL",
    "SELECT i FROM t ORDER BY {call}",
    "SELECT i FROM t LIMIT (SELECT length({call}))",
    "SELECT count(*) FILTER (WHERE {call} IS NULL) FROM t",
    "SELECT sum(i) OVER (ORDER BY {call}) FROM t",
    "SELECT i FROM t QUALIFY row_number() OVER (ORDER BY {call}) = 1",
    "SELECT * FROM t JOIN csv ON {call} IS NULL",
    "SELECT * FROM (SELECT {call} AS x FROM t) AS q",
    "WITH a AS (SELECT {call} AS x FROM t) SELECT * FROM a",
    "WITH RECURSIVE a(x) AS (SELECT {call} FROM t UNION SELECT x FROM a) SELECT * FROM a",
    "SELECT 1 FROM t UNION ALL SELECT length({call}) FROM t",
    "SELECT CASE WHEN {call} IS NULL THEN 1 END FROM t",
    "SELECT CAST({call} AS VARCHAR) FROM t",
    "SELECT i IN (SELECT length({call}) FROM t) FROM t",
    "SELECT EXISTS (SELECT {call} FROM t) FROM t",
    "INSERT INTO t VALUES (1, {call})",
    "INSERT INTO t SELECT 1, {call} FROM t",
    "UPDATE t SET name = {call}",
    "UPDATE t SET name = 'y' WHERE {call} IS NOT NULL",
    "DELETE FROM t WHERE {call} IS NOT NULL",
    "CREATE TABLE u AS SELECT {call} AS x FROM t",
    "SELECT {call} AS x FROM s",
    "SELECT v FROM s WHERE {call} IS NOT NULL",
    "SELECT v FROM s [RANGE 5] WHERE {call} IS NOT NULL",
    "SELECT s.v FROM s, t WHERE s.v = t.i AND {call} IS NOT NULL",
    "SELECT (SELECT max({call}) FROM t) AS m FROM s",
    "CREATE FUNCTION f(x INT) AS {call}",
    "CREATE VIEW w AS SELECT {call} AS x FROM s [RANGE 5]",
    "CREATE STREAM d AS SELECT {call} AS x FROM s",
    "CREATE AGGREGATE g(x INT) : VARCHAR {{ TABLE r(a VARCHAR); INITIALIZE: {{ INSERT INTO r VALUES ({call}); }} "
    "ITERATE: {{ }} TERMINATE: {{ INSERT INTO RETURN SELECT a FROM r; }} }}",
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY at MEASURES {call} AS m PATTERN (A) DEFINE A AS v > 0) AS p",
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY at MEASURES A.v AS m PATTERN (A) DEFINE A AS {call} IS NULL) AS p",
]
"""where a call can stand"""

CALLS = [
    "current_setting('home_directory')",
    "getenv('HOME')",
    "getvariable('x')",
    "version()",
    "current_user",
    "session_user",
    "user",
    "current_schema",
    "current_database()",
    "current_query()",
    "sleep_ms(1)",
    "pg_sleep(1)",
    "write_log('x')",
    "nextval('x')",
    "txid_current()",
    "json_serialize_sql('SELECT 1')",
    "pg_get_viewdef(1)",
    "reflect('java.lang.System', 'getenv')",
    "java_method('java.lang.System', 'getenv')",
    "\"current_setting\"('threads')",
    "main.current_setting('threads')",
    "system.main.current_setting('threads')",
]
"""what does more than to compute"""


@pytest.mark.parametrize("profile", ["default", "untrusted"])
@pytest.mark.parametrize("attempt", FILES)
def test_sql_is_refused_and_leaves_no_trace(tmp_path: Path, attempt: str, profile: str) -> None:
    (tmp_path / "f.csv").write_text("a\n42\n")
    with ms.connect(profile=profile) as db:
        db.execute(TABLES)
        with pytest.raises(ms.MillstreamError):
            result = db.execute(attempt.format(folder=tmp_path))
            if result is not None:
                result.fetch()
        assert db.sql("SELECT * FROM t").fetch().to_pylist() == [{"i": 1, "name": "x"}]
    assert [path.name for path in tmp_path.iterdir()] == ["f.csv"]


@pytest.mark.parametrize("place", PLACES)
def test_no_clause_calls_what_does_more_than_compute(place: str) -> None:
    """Before anything runs: with one row pushed, a call that came through would have been made."""
    for profile in ("default", "untrusted"):
        with ms.connect(profile=profile) as db:
            db.execute(TABLES)
            for call in CALLS:
                with pytest.raises(ms.MillstreamError):
                    db.execute(place.format(call=call))
                    pytest.fail(f"{place.format(call=call)} was accepted under the profile {profile}")
            assert db.sql("SELECT * FROM t").fetch().to_pylist() == [{"i": 1, "name": "x"}]


@pytest.mark.parametrize("place", PLACES)
def test_every_place_takes_a_call_that_computes(place: str) -> None:
    """So that the attempts above are refused for what they call, not for their form."""
    with ms.connect() as db:
        db.execute(TABLES)
        db.execute(place.format(call="lower('X')"))


def test_a_column_may_have_the_name_of_such_a_function() -> None:
    with ms.connect() as db:
        db.execute("CREATE TABLE u (user VARCHAR); INSERT INTO u VALUES ('me')")
        assert db.sql("SELECT user, upper(user) AS up FROM u WHERE user = 'me'").fetch().to_pylist() == [
            {"user": "me", "up": "ME"}
        ]
        assert db.sql("WITH w(user) AS (SELECT 1 FROM u) SELECT user FROM w").fetch().num_rows == 1


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
    for memory in (0, 1 << 30):
        with sealed_duckdb.connect(memory=memory) as store:
            settings = dict(store.sql("SELECT name, value FROM duckdb_settings()").fetchall())
            assert settings["autoinstall_known_extensions"] == "false"
            assert settings["autoload_known_extensions"] == "false"
            assert settings["lock_configuration"] == "true"
            assert settings["enable_external_access"] == "false"
            assert settings["allow_community_extensions"] == "false"


def test_duckdb_is_opened_in_one_place() -> None:
    package = Path(ms.__file__).parent
    opening = [path.name for path in package.rglob("*.py") if "duckdb.connect(" in _code(path)]
    assert opening == ["sealed_duckdb.py"]


def _code(path: Path) -> str:
    return path.read_text(encoding="utf-8").replace("sealed_duckdb.connect(", "")
