"""The profile untrusted: SQL reaches what the operator has named, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream as ms

COLUMNS = "(v int, at int) ORDER BY at"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.csv").write_text("v,at\n1,1\n2,2\n")
    (tmp_path / "in" / "deep" / "b.csv").write_text("v,at\n3,3\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "secret.csv").write_text("v,at\n42,1\n")
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "c.csv").write_text("v,at\n43,1\n")
    return tmp_path


@pytest.fixture
def db(place: Path) -> Iterator[ms.Database]:
    locations = {"data": ms.Location(place / "in", read_only=True), "out": place / "out"}
    with ms.connect(profile="untrusted", locations=locations) as session:
        yield session


def source(options: str) -> str:
    return f"CREATE STREAM f {COLUMNS} WITH (connector = 'file', {options})"


def test_files_are_read_and_written_in_locations(db: ms.Database, place: Path) -> None:
    db.execute(source("location = 'DATA', path = 'a.csv'"))
    db.execute("CREATE SINK o WITH (connector = 'file', location = 'out', path = 'x/y', format = 'csv')")
    db.execute("INSERT INTO o SELECT v FROM f")
    db.finish()
    assert (place / "out" / "x" / "y" / "part-00000.csv").read_text() == "v\n1\n2\n"


def test_globs_directories_and_tables_are_read_in_locations(db: ms.Database) -> None:
    db.execute(source("location = 'data', path = '*/b.csv'"))
    assert db.sql("SELECT v FROM f").arrow().column("v").to_pylist() == [3]
    db.execute("CREATE TABLE t (v int, at int) WITH (connector = 'file', location = 'data', path = 'deep')")
    assert db.sql("SELECT v FROM t").fetch().column("v").to_pylist() == [3]
    db.execute(f"CREATE STREAM g {COLUMNS} SOURCE 'a.csv' WITH (location = 'data')")
    assert db.sql("SELECT v FROM g").arrow().num_rows == 2


REACHING_OUT = [
    source("path = '{place}/in/a.csv'"),
    source("path = 'a.csv'"),
    source("location = 'data', path = '{place}/secret.csv'"),
    source("location = 'data', path = '../secret.csv'"),
    source("location = 'data', path = 'deep/../../secret.csv'"),
    source("location = 'data', path = 'deep/..'"),
    source("location = 'data', path = '~/x.csv'"),
    source("location = 'data', path = '..\\..\\x.csv'"),
    source("location = 'nowhere', path = 'a.csv'"),
    source("location = '', path = 'a.csv'"),
    source("location = '../', path = 'a.csv'"),
    source("location = 'data', path = 'a.csv', \"$within\" = '/'"),
    source("location = 'data', \"PATH\" = '/etc/x.csv'"),
    source("\"LOCATION\" = 'data', path = '/etc/x.csv'"),
    f"CREATE STREAM f {COLUMNS} SOURCE '{{place}}/secret.csv'",
    f"CREATE STREAM f {COLUMNS} WITH (connector = ' Files ', path = '{{place}}/secret.csv')",
    f"CREATE STREAM f {COLUMNS} WITH (\"CONNECTOR\" = 'file', path = '{{place}}/secret.csv')",
    f"STREAM f {COLUMNS} SOURCE '{{place}}/secret.csv'",
    "CREATE TABLE f (v int, at int) WITH (connector = 'file', path = '{place}/secret.csv')",
    "CREATE OR REPLACE TABLE f (v int, at int) WITH (connector = 'file', path = '{place}/secret.csv')",
    "CREATE SINK f WITH (connector = 'file', path = '{place}/x')",
    "CREATE SINK f WITH (connector = 'file', path = 'x')",
    "CREATE SINK f WITH (connector = 'file', location = 'out', path = '../x')",
    "CREATE SINK f WITH (connector = 'file', location = 'data', path = 'x')",
    "CREATE SINK f WITH (connector = 'file', path = 'hdfs://host/x')",
    "CREATE SINK f WITH (connector = 'file', path = 's3://bucket/x')",
    "CREATE SINK f WITH (connector = 'terminal')",
    "CREATE SINK f WITH (connector = 'stdout')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'port', port = 0, host = '0.0.0.0')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'port', port = 0, host = '::')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'tcp', port = 0, host = 'example.com')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'port', port = 80, host = '169.254.169.254', mode = 'connect')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'port', port = 22, mode = ' CONNECT ')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'kafka', topic = 'x', brokers = 'other:9092')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'kafka', topic = 'x', bootstrap_servers = 'other:9092')",
    "CREATE SINK f WITH (connector = 'kafka', topic = 'x', brokers = 'other:9092')",
    "SET LOCATION data = '/'",
    "SET LOCATION root = '/' READ ONLY",
    "RESET LOCATION data",
    "SET statement_timeout = 0",
    "SET memory_limit = 0",
    "SET max_output_rows = 0",
    "SET durability = process",
    "SET jit = off",
    "RESET statement_timeout",
    "SET profile = 'default'",
]


@pytest.mark.parametrize("attempt", REACHING_OUT)
def test_nothing_else_is_reached(db: ms.Database, place: Path, attempt: str) -> None:
    before = sorted(place.rglob("*"))
    with pytest.raises(ms.MillstreamError):
        db.execute(attempt.replace("{place}", str(place)))
    assert db.catalog.find("f") is None
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("path", ["link.csv", "*.csv", "linked/c.csv", "linked", "linked/*.csv", "deep"])
def test_links_do_not_lead_out(db: ms.Database, place: Path, path: str) -> None:
    (place / "in" / "link.csv").symlink_to(place / "secret.csv")
    (place / "in" / "linked").symlink_to(place / "vault")
    (place / "in" / "deep" / "b.csv").unlink()
    (place / "in" / "deep" / "b.csv").symlink_to(place / "secret.csv")
    with pytest.raises(ms.ConnectorError, match="leads out of its location"):
        db.execute(f"CREATE TABLE f (v int, at int) WITH (connector = 'file', location = 'data', path = '{path}')")


def test_links_do_not_lead_sinks_out(db: ms.Database, place: Path) -> None:
    (place / "out" / "linked").symlink_to(place / "vault")
    (place / "out" / "one.csv").symlink_to(place / "secret.csv")
    for path, more in (("linked/x", ""), ("linked", ""), ("one.csv", ", single_file = true")):
        with pytest.raises(ms.ConnectorError, match="leads out of its location"):
            db.execute(f"CREATE SINK o WITH (connector = 'file', location = 'out', path = '{path}'{more})")
    assert (place / "secret.csv").read_text() == "v,at\n42,1\n"


def test_a_followed_directory_reads_no_link_that_comes_later(db: ms.Database, place: Path) -> None:
    db.execute(source("location = 'data', path = 'deep', follow = true, poll_ms = 10"))
    q = db.sql("SELECT v FROM f")
    (place / "in" / "deep" / "c.csv").symlink_to(place / "secret.csv")
    with pytest.raises(ms.MillstreamError, match="leads out"):
        db.run()
    assert 42 not in q.fetch().column("v").to_pylist()


def test_the_operator_may_do_all(db: ms.Database, place: Path) -> None:
    with db.as_operator():
        db.execute(f"SET LOCATION more = '{place}/vault' READ ONLY; SET max_output_rows = 5")
        db.execute(f"CREATE STREAM o {COLUMNS} WITH (connector = 'file', path = '{place}/secret.csv')")
    db.execute(source("location = 'more', path = 'c.csv'"))
    assert db.sql("SELECT v FROM f UNION ALL SELECT v FROM o").arrow().column("v").to_pylist() == [43, 42]
    with pytest.raises(ms.MillstreamError):
        db.execute("SET max_output_rows = 6")
    with pytest.raises(ms.MillstreamError, match="read-only"):
        db.execute("CREATE SINK z WITH (connector = 'file', location = 'more', path = 'x')")


def test_allowed_hosts_brokers_and_addresses() -> None:
    with ms.connect(
        profile="untrusted", hosts=["127.0.0.1:9"], brokers=["127.0.0.1:1", "b:2"], listen=["0.0.0.0"]
    ) as db:
        db.execute(f"CREATE STREAM a {COLUMNS} WITH (connector = 'port', port = 9, mode = 'connect')")
        db.execute(f"CREATE STREAM b {COLUMNS} WITH (connector = 'port', port = 0, host = '0.0.0.0')")
        db.execute(f"CREATE STREAM c {COLUMNS} WITH (connector = 'port', port = 0)")
        db.execute(f"CREATE STREAM d {COLUMNS} WITH (connector = 'port', port = 0, host = 'localhost')")
        kafka = f"CREATE STREAM k {COLUMNS} WITH (connector = 'kafka', topic = 'x', brokers = '127.0.0.1:1, B:2'"
        db.execute(kafka + ")")
        for more in ("kafka.ssl.ca.location = '/etc/passwd'", "kafka.sasl.kerberos.keytab = '/etc/x'"):
            with pytest.raises(ms.MillstreamError, match="not allowed here"):
                db.execute(kafka.replace("STREAM k", "STREAM m") + f", {more})")
        with pytest.raises(ms.MillstreamError, match="not allowed here"):
            db.execute(kafka.replace("STREAM k", "STREAM m").replace("B:2", "c:3") + ")")


def test_the_default_profile_knows_locations_too(place: Path) -> None:
    with ms.connect(locations={"data": place / "in"}) as db:
        db.execute(source("location = 'data', path = 'a.csv'"))
        db.execute(f"SET LOCATION more = '{place}/vault'")
        db.execute(source("location = 'more', path = 'c.csv'").replace("STREAM f", "STREAM g"))
        with pytest.raises(ms.MillstreamError, match="inside a location"):
            db.execute(source("location = 'data', path = '../secret.csv'").replace("STREAM f", "STREAM h"))
        db.execute("RESET LOCATION more")
        with pytest.raises(ms.MillstreamError, match="no location"):
            db.execute(source("location = 'more', path = 'c.csv'").replace("STREAM f", "STREAM h"))


def test_a_session_in_a_directory_keeps_what_was_granted(place: Path) -> None:
    given = {"profile": "untrusted", "locations": {"data": place / "in", "out": place / "out"}}
    with ms.connect(place / "session", **given) as db:
        db.execute(source("location = 'data', path = 'a.csv'"))
        db.execute("CREATE SINK o WITH (connector = 'file', location = 'out', path = 'x')")
        db.sql("SELECT v FROM f", name="q")
    with ms.connect(place / "session", **given) as db:
        assert db.query("q").arrow().num_rows == 2
        db.execute("INSERT INTO o SELECT v FROM f")
        with pytest.raises(ms.MillstreamError):
            db.execute("SET jit = off")
    assert (place / "session").stat().st_mode & 0o077 == 0


def test_lists_show_neither_places_nor_passwords(db: ms.Database, place: Path) -> None:
    db.execute("CREATE SINK o WITH (connector = 'file', location = 'out', path = 'x')")
    with db.as_operator():
        db.execute(
            "CREATE SINK k WITH (connector = 'kafka', topic = 'x', brokers = 'b:1', kafka.sasl.password = 'hush')"
        )
    shown = str(db.sql("SHOW SINKS").fetch().to_pylist())
    assert str(place) not in shown and "hush" not in shown
    assert "location = out, path = x" in shown


def test_no_port_is_open_but_those_declared(db: ms.Database) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ms.MillstreamError):
        db.execute(f"CREATE STREAM p {COLUMNS} WITH (connector = 'port', port = {port}, host = '0.0.0.0')")
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_profile_has_a_name() -> None:
    with pytest.raises(ms.MillstreamError, match="no profile"):
        ms.connect(profile="trusting")
