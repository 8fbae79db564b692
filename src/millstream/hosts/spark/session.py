"""Spark sessions for Millstream: created here, or given by the user and checked."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from millstream.errors import EngineError
from millstream.expressions.python_calls import PythonCode
from millstream.hosts.spark.quiet import StartupOutput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
KEPT_AS = "spark.millstream.state"
"""How streaming queries keep state: in Spark's `variables`, as one `value` for each bucket, or in `files` of ours."""
AUTO, VARIABLES, VALUE, FILES = "auto", "variables", "value", "files"
OPEN = "spark.millstream.open"
"""Whether queries come and go while jobs run, and with how many exchanges."""
DEFAULT_EXCHANGES = 2
CHECKS = "spark.sql.streaming.unsupportedOperationCheck"
"""Whether Spark refuses, among others, several operators that keep one value each."""
WORKERS = "MILLSTREAM_WORKERS"
"""The variable that tells kinds of Python workers apart."""
REMOTE_TASKS = 8
"""Tasks of an exchange on Spark Connect, which does not tell how many cores there are."""

_LONGEST_PLACE = 60
"""Bytes of a directory's name, so that sockets in it have names that the system takes."""

EMBEDDED_HINT = "the in-process engine needs neither Java nor Spark: ms.connect()"


def get_session(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """The Spark session of this process, as it is; or a new one on `master`, where `conf` has the last word."""
    session_class = _session_class()
    from pyspark import SparkContext

    active = session_class.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None:
        return session_class.builder.getOrCreate()
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        # workers must run the interpreter that has millstream, not whatever python3 is on the PATH
        os.environ[variable] = sys.executable
    settings = {**_settings(master), **(conf or {})}
    _start_context(master, settings)
    builder = session_class.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_streaming(spark: SparkSession) -> None:
    """Make sure that kernels can keep state in streaming queries of this session."""
    if spark.conf.get(PROVIDER, "") == ROCKSDB:
        return
    from pyspark.errors import PySparkException

    try:
        spark.conf.set(PROVIDER, ROCKSDB)
    except PySparkException:
        raise EngineError(
            "this Spark session cannot store the state of streaming queries",
            detail=f"{PROVIDER} must be the RocksDB provider, and the session does not allow setting it",
            hint=f"start the session with {PROVIDER}={ROCKSDB}",
        ) from None


@contextmanager
def for_stages(spark: SparkSession) -> Iterator[None]:
    """Functions that are made inside keep state, and have Python workers that no others use.

    Spark gives a task the worker that has rested longest. Workers of stages that are mixed with others get other
    buckets each time, and must read the state that another one has at hand.
    """
    if not hasattr(spark, "_jsparkSession"):
        yield
        return
    environment = spark.sparkContext.environment
    environment[WORKERS] = "stages"
    try:
        yield
    finally:
        environment.pop(WORKERS, None)


def kept_as(spark: SparkSession) -> str:
    """How the session wants state to be kept."""
    found = str(spark.conf.get(KEPT_AS, AUTO) or AUTO).strip().lower()
    if found not in (AUTO, FILES, VALUE, VARIABLES):
        raise EngineError(f"{KEPT_AS} is {found!r}", hint=f"choose {AUTO}, {FILES}, {VALUE} or {VARIABLES}")
    if found == AUTO:
        return FILES if _shares_files(spark) else VARIABLES
    if found == FILES and not hasattr(spark, "_jsparkSession"):
        raise EngineError(
            f"{KEPT_AS} cannot be {FILES} on Spark Connect",
            detail="only the process that has the session can send the checkpoint's path to tasks",
            hint=f"choose {VARIABLES} or {VALUE}",
        )
    return found


def exchanges_of(spark: SparkSession, asked: bool | int | None = None) -> int:
    """How many exchanges an open job shall have, as asked, or as the session says; 0 if it shall not be open."""
    text = str(spark.conf.get(OPEN, "false") if asked is None else asked).strip().lower()
    if text in ("true", "false"):
        return DEFAULT_EXCHANGES if text == "true" else 0
    if not text.isdigit() or int(text) < 1:
        raise EngineError(
            f"{'open' if asked is not None else OPEN} is {text!r}",
            hint="say true or false, or how many exchanges the queries may need, at least 1",
        )
    return int(text)


def kept_in_frame(spark: SparkSession, exchanges: int, watermarked: bool) -> str:
    """How the state of a DataFrame is kept: only variables have timers, and Spark may refuse several single values."""
    found = kept_as(spark)
    refused = exchanges > 1 and str(spark.conf.get(CHECKS, "true")).lower() != "false"
    return VARIABLES if watermarked or (found == VALUE and refused) else found


def _shares_files(spark: SparkSession) -> bool:
    """Whether the driver and all workers are on one machine, whose files hold checkpoints."""
    if not hasattr(spark, "_jsparkSession"):
        return False
    context: Any = spark.sparkContext
    place = str(context._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///"))
    return context.master.startswith("local") and "cluster" not in context.master and place.startswith("file:")


def register_source(spark: SparkSession, source: Any) -> None:
    """Make a data source in Python known to a session, and the session the one where this thread looks it up."""
    spark.dataSource.register(source)
    if hasattr(spark, "_jsparkSession"):
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def register_own(spark: SparkSession, kind: type, form: str, **attributes: Any) -> str:
    """Make a data source with these attributes known, under the name that is returned."""
    name = f"{form}_{uuid4().hex}"
    made = type(f"Own{kind.__name__}", (kind,), {**attributes, "name": classmethod(lambda _: name)})
    register_source(spark, made)
    return name


def send_whole(codes: Iterable[PythonCode]) -> None:
    """Let Spark send code in Python with the module it stands in, which other machines may not have."""
    from pyspark import cloudpickle

    for code in codes:
        module = sys.modules.get(code.made.__module__)
        if module is not None and module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
        try:
            cloudpickle.dumps(code.made)
        except Exception as error:
            raise EngineError(
                f"{code.name} cannot be sent to other processes",
                detail=f"{type(error).__name__}: {error}",
                hint="open files and connections inside it, not in the module around it",
            ) from error


NOT_HERE = {
    "jit": "set MILLSTREAM_JIT where the workers run: spark.executorEnv.MILLSTREAM_JIT",
    "idle_timeout": "spark.millstream.idle says how long an input may be idle",
    "threads": "a task has one core; Spark's cores and spark.sql.shuffle.partitions say how many tasks run at once",
    "checkpoint_seconds": "the trigger of a streaming query says when its state is saved",
    "max_unfetched_rows": "the driver collects fetched rows; write large results to a sink",
    "when_unfetched": "the driver collects fetched rows; write large results to a sink",
    "durability": "Spark keeps the offsets of sources and the state of streaming queries in their checkpoint",
}
"""Settings that are about the process that queries run in, and what to use on Spark."""


def refuse_setting(name: str) -> None:
    """Refuse a setting that would have no effect on Spark."""
    if name in NOT_HERE:
        raise EngineError(f"{name} is a setting of the in-process engine only", hint=NOT_HERE[name])


def cores_of(spark: SparkSession) -> int:
    """How many tasks an exchange is spread over: as the session says, or as many as it has cores."""
    chosen = spark.conf.get(PARTITIONS, None)
    if chosen is not None:
        return max(1, int(chosen))
    if hasattr(spark, "_jsparkSession"):
        return int(spark.sparkContext.defaultParallelism)
    return REMOTE_TASKS


def _session_class() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise EngineError(
            "the Spark engine needs pyspark, which is not installed",
            hint=f"pip install 'millstream[spark]'; {EMBEDDED_HINT}",
        ) from None
    return SparkSession


def _settings(master: str) -> dict[str, str]:
    local = master.startswith("local")
    settings = {
        "spark.app.name": "millstream",
        "spark.sql.session.timeZone": "UTC",
        PROVIDER: ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # blobs go to the workers one or a few at a time: in larger batches Spark spends its time growing buffers
        "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 20),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }
    if local:
        settings |= {
            # failed tasks come back as exceptions with their whole story; the log would only repeat it
            "spark.log.level": "FATAL",
            "spark.ui.enabled": "false",
            # programs say themselves how many tasks they want; planning again between stages only takes time
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{_driver_memory_mb()}m",
            "spark.driver.maxResultSize": "0",
            # an exchange within one machine is cheaper than its compression
            "spark.shuffle.compress": "false",
            "spark.sql.shuffle.partitions": str(_local_cores(master)),
            "spark.python.daemon.module": "millstream.hosts.spark.workers",
            "spark.sql.streaming.checkpointFileManagerClass": _file_manager(),
            **_sockets(),
        }
    return settings


def _sockets() -> dict[str, str]:
    """How workers are connected. Over TCP one waits up to 40 ms for its next rows, where Nagle's algorithm meets
    delayed acknowledgements. Other sockets are files, whose paths must be short."""
    places = [tempfile.gettempdir(), "/tmp"]
    place = next((p for p in places if Path(p).is_dir() and len(os.fsencode(p)) <= _LONGEST_PLACE), None)
    if place is None or sys.platform == "win32":
        return {}
    name = "spark.python.unix.domain.socket"
    return {f"{name}.enabled": "true", f"{name}.dir": place}


def _file_manager() -> str:
    """What writes the files of checkpoints: Spark's default starts about five processes (readlink) for each file that
    it puts in its place on a local disk."""
    from pyspark import __version__

    release = tuple(int(part) for part in __version__.split(".")[:2])
    package = "execution.streaming.checkpointing" if release >= (4, 1) else "execution.streaming"
    return f"org.apache.spark.sql.{package}.FileSystemBasedCheckpointFileManager"


def _local_cores(master: str) -> int:
    """The number of threads that local[n], local[*] or local[n,f] asks for.

    >>> _local_cores("local"), _local_cores("local[3]"), _local_cores("local[3,2]")
    (1, 3, 3)
    """
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1


def _driver_memory_mb() -> int:
    """In local mode the driver is the whole cluster: a third of the machine, at least a gigabyte."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError, AttributeError):
        return 2048
    return max(1024, total // 3)


def _start_context(master: str, settings: Mapping[str, str]) -> None:
    """Start the JVM and the context without the banners that Spark and Java print first."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    gateway = SparkContext._gateway
    home = os.environ.get("JAVA_HOME")
    if gateway is None and not _java():
        raise EngineError(
            "the Spark engine needs Java, and none was found",
            detail=f"JAVA_HOME is {home}, which has no java"
            if home
            else "no java on the PATH, and JAVA_HOME is not set",
            hint=f"install Java 17 (or newer) and set JAVA_HOME; {EMBEDDED_HINT}",
        )
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    output = StartupOutput()
    try:
        if gateway is None:
            gateway = launch_gateway(conf, {"stderr": output.inlet})
        SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        said = output.give_up()
        if not isinstance(error, PySparkException) and type(error).__name__ != "Py4JJavaError":
            raise
        raise EngineError(
            "Spark did not start",
            detail=said or str(error).splitlines()[0],
            hint=f"Spark needs Java 17 or newer; {EMBEDDED_HINT}",
        ) from None
    output.started()
    # errors are raised with the same text; as a log they would only come a second time
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    if home:
        return (Path(home) / "bin" / "java").exists() or (Path(home) / "bin" / "java.exe").exists()
    return shutil.which("java") is not None
