"""Starts Spark sessions with all the history needs: the connector, our code, one Python."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cluster_model.history.errors import HistoryError, MissingSparkError, sentence

JAVA = 17
# Delta Lake for the Spark that our own tests run, where pip has installed no other.
DELTA = "4.0.0"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
PACKAGES = ("balancer", "cluster_model", "goals", "metrics_reporter")

# Seconds to wait for the last output of a Java process that ended.
_GOODBYE = 5.0
_SETTINGS = Path(__file__).with_name("ivysettings.xml")
_DEFAULTS = {
    "spark.app.name": "counterpoise history",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # A failure is reported in one sentence, without the traces of every task that met it.
    "spark.log.level": "FATAL",
    # Spark would name the line that called each of its functions, for which it asks the JVM ten
    # times instead of four: half of the time in which a query over little data is stated.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Nor the stack of the JVM at each of these calls, which it would keep for messages of errors.
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
# Names of Delta Lake's extension and catalog, which belong together.
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_DELTA = {
    _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# What makes little data fast, set unless the user has set it anywhere.
_UNLESS_SET = {
    # Tasks by the bytes of a shuffle, for tables that are kept, too: Spark makes 200 tasks for
    # each of those by default, which is nearly all of the work for some megabytes.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # Tasks that read a Delta table's log; 50 by default, for tables of millions of files.
    "spark.databricks.delta.snapshotPartitions": "4",
}
# Start of the address of a server of Spark Connect, and what is set there for our session.
_REMOTE = "sc://"
_REMOTE_PORT = 15002
# Seconds in which such a server has to accept a connection.
_REACHED_SECONDS = 10.0
_OF_SESSIONS = ("spark.sql.session.timeZone", "spark.sql.execution.arrow.pyspark.enabled")
# A session with a local master is accessible only from this machine.
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Most generated code runs briefly: Java's second compiler waits ten times longer than by
    # default, or it takes longer than the queries. What spark.driver.extraJavaOptions has counts
    # more.
    "spark.driver.defaultJavaOptions": (
        "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
        "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
    ),
}


def spark_session(
    master: str | None = None,
    *,
    kafka: bool = False,
    delta: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark session of this process, started with all the history needs if there is none.

    Its executors have our code, with any master.

    Parameters
    ----------
    master
        For example ``"local[*]"``, which is also the default if Spark's own configuration
        names none; ``"sc://HOST:PORT"`` for a server of Spark Connect, which has to have what
        is read (the connector, Delta Lake) itself.
    kafka
        Whether topics will be read. Spark then fetches its Kafka connector from Maven
        Central, once, or from the repository in ``spark.jars.ivySettings`` or Spark's
        ``DEFAULT_ARTIFACT_REPOSITORY``. It cannot be added to an existing session.
    delta
        Whether archives will be read or written. Spark fetches Delta Lake like the connector,
        in the version of the package ``delta-spark``, unless its jar is among those of Spark or
        of ``spark.jars``.
    config
        Spark properties; they override ours.

    Raises
    ------
    HistoryError
        If there is no Java, or the connector is unavailable.

    Examples
    --------
    ::

        spark = spark_session("local[*]", kafka=True, config={"spark.driver.memory": "4g"})
    """
    config = config or {}
    if master is not None and master.startswith(_REMOTE):
        return _remote(master, config)
    if SparkContext._active_spark_context is None:
        require_java()
    packages = _packages(kafka, delta, config)
    options = {**_DEFAULTS, **(_repository(config) if packages else {}), **config}
    if delta:
        options |= {name: value for name, value in _DELTA.items() if name not in config}
        extensions = (config.get(_EXTENSIONS), _DELTA[_EXTENSIONS])
        options[_EXTENSIONS] = ",".join(dict.fromkeys(filter(None, extensions)))
    if master is not None:
        options["spark.master"] = master
    if options.get("spark.master", configured_master()).startswith("local"):
        options = {**_LOCAL, **options}
    if packages:
        asked = config.get("spark.jars.packages")
        options["spark.jars.packages"] = ",".join(filter(None, (asked, *packages)))
    # Executors run the driver's Python, unless configured otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", options.get("spark.pyspark.python", sys.executable))
    return _completed(_started(options, packages))


def configured_master() -> str:
    """The master that Spark's own configuration names; ``local[*]`` if it names none."""
    submitted = re.findall(r"--master[= ](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    home = os.environ.get("SPARK_HOME", "")
    directory = os.environ.get("SPARK_CONF_DIR") or (str(Path(home, "conf")) if home else None)
    defaults = None if directory is None else Path(directory, "spark-defaults.conf")
    text = defaults.read_text() if defaults is not None and defaults.is_file() else ""
    stated = re.findall(r"(?m)^\s*spark\.master[\s=:]+(\S+)", text)
    found = [*stated, *submitted]
    return found[-1] if found else "local[*]"


def _remote(address: str, config: Mapping[str, str]) -> SparkSession:
    """A session of a server of Spark Connect.

    Raises
    ------
    HistoryError
        If the client's packages are missing, or the server does not answer.
    """
    # The client would try for ten minutes.
    parts = urlsplit(address)
    try:
        host, port = parts.hostname or "", parts.port or _REMOTE_PORT
        socket.create_connection((host, port), _REACHED_SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HistoryError(
            f"Spark Connect: no server at {address} ({reason}), sc://HOST:PORT of one expected"
        ) from None
    try:
        builder = SparkSession.builder.remote(address)
        options = {name: _DEFAULTS[name] for name in _OF_SESSIONS} | dict(config)
        for name, value in options.items():
            builder = builder.config(name, value)
        return _completed(builder.getOrCreate())
    except ImportError as error:
        raise MissingSparkError(
            f"Spark Connect: {error.name} is not installed: pip install 'counterpoise[connect]'"
        ) from None
    except PySparkException as error:
        raise HistoryError(f"Spark Connect at {address}: {sentence(error)}") from None


def _completed(spark: SparkSession) -> SparkSession:
    """The session with our code, and with settings that neither it nor Spark's files name."""
    for name, value in _UNLESS_SET.items():
        if spark.conf.get(name, None) is None:
            spark.conf.set(name, value)
    ship_code(spark)
    return spark


def delta_artifact() -> str:
    """Maven coordinates of the Delta Lake that fits this Spark.

    Raises
    ------
    MissingSparkError
        If no version of it is known for this Spark.
    """
    of_spark = ".".join(pyspark.__version__.split(".")[:2])
    try:
        found = metadata.version("delta-spark")
    except metadata.PackageNotFoundError:
        if not DELTA.startswith(f"{of_spark}."):
            raise MissingSparkError(
                "delta-spark is not installed: pip install 'counterpoise[spark]'"
            ) from None
        found = DELTA
    # Since 4.1 an artifact names its Spark.
    suffix = "" if found.startswith("4.0.") else f"_{of_spark}"
    return f"io.delta:delta-spark{suffix}_2.13:{found}"


def is_remote(spark: SparkSession) -> bool:
    """Whether the driver is elsewhere, and reached by Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def ship_code(spark: SparkSession) -> None:
    """Send our packages, as installed here, to the executors of a session; once is enough.

    The alternative from outside is ``spark-submit --py-files`` with a zip of
    them, or ``--archives`` with an environment in which ``counterpoise`` is installed.
    """
    archive = _archive()
    if is_remote(spark):
        spark.addArtifacts(str(archive), pyfile=True)
        return
    if any(Path(name).name == archive.name for name in spark.sparkContext.listFiles):
        return
    spark.sparkContext.addPyFile(str(archive))
    # The driver uses the packages as installed, with their data files.
    sys.path[:] = [p for p in sys.path if Path(p).name != archive.name]


def require_java() -> str:
    """Path of the Java that Spark will use.

    Raises
    ------
    MissingSparkError
        If there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    where = f"JAVA_HOME ({home})" if home else "the PATH"
    if found is None:
        raise MissingSparkError(f"Spark: no java found on {where}, Java {JAVA} or newer expected")
    said = subprocess.run([found, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA:
        reported = version[1] if version else "no version"
        raise MissingSparkError(
            f"Spark: Java {reported} found at {found}, {JAVA} or newer expected"
        )
    return found


def _started(options: Mapping[str, str], packages: Sequence[str]) -> SparkSession:
    """The session; Java's output at start is shown only if it fails."""
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    if SparkContext._gateway is not None:
        return _got(builder)
    read, write = os.pipe()
    said: list[str] = []
    up = threading.Event()

    def listen() -> None:
        with open(read, errors="replace") as lines:
            for line in _without_cut_off_workers(lines):
                if up.is_set():
                    sys.stderr.write(line)
                else:
                    said.append(line)

    listening = threading.Thread(target=listen, name="what Java says", daemon=True)
    listening.start()
    conf = SparkConf().setAll(list(options.items()))
    launch: Any = launch_gateway
    try:
        gateway = launch(conf, {"stdout": write, "stderr": write})
    except PySparkRuntimeError:
        os.close(write)
        listening.join(_GOODBYE)
        raise HistoryError(_why("".join(said), packages)) from None
    os.close(write)
    SparkContext._ensure_initialized(gateway=gateway)
    try:
        return _got(builder)
    finally:
        up.set()


def _without_cut_off_workers(lines: Iterable[str]) -> Iterator[str]:
    """Lines of Spark's output without the traceback of a Python worker that it no longer needs.

    When a job fails, Spark closes its connections to workers that are just starting; each of
    them then prints an `EOFError`, which says nothing about the failure.

    Examples
    --------
    >>> worker = ["Traceback (most recent call last):", '  File "daemon.py", line 69, in worker']
    >>> list(_without_cut_off_workers([*worker, "EOFError", "WARN disk is full"]))
    ['WARN disk is full']
    >>> len(list(_without_cut_off_workers([*worker, "KeyError: 'a'"])))
    3
    """
    held: list[str] = []
    for line in lines:
        if line.startswith("Traceback ") or (held and line.startswith(" ")):
            held.append(line)
            continue
        cut_off = line.startswith("EOFError") and any("daemon.py" in part for part in held)
        if not cut_off:
            yield from held
            yield line
        held = []
    yield from held


def _got(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JJavaError) as error:
        raise HistoryError(f"Spark did not start: {sentence(error)}") from None


def _why(said: str, packages: Sequence[str]) -> str:
    """The reason why Java ended before there was a session."""
    if packages and "unresolved dependency" in said.lower():
        return (
            f"Spark could not fetch {' and '.join(packages)} from Maven Central, or from where "
            "spark.jars.ivySettings points; the first time this needs a network; without one, "
            "install their jars and those they need in the directory jars of pyspark, or name "
            "them with spark.jars"
        )
    reported = [
        line.strip() for line in said.splitlines() if re.search("error|exception", line, re.I)
    ]
    return f"Spark did not start: {(reported or said.splitlines()[-1:] or ['Java ended'])[0]}"


def _packages(kafka: bool, delta: bool, config: Mapping[str, str]) -> list[str]:
    """Maven coordinates of what is asked for and is not here as a jar."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    here = [path.name for path in home.glob("jars/*.jar")]
    here += [name.rsplit("/", 1)[-1] for name in config.get("spark.jars", "").split(",")]
    needed = [CONNECTOR] if kafka else []
    needed += [delta_artifact()] if delta else []
    return [
        package
        for package in needed
        if not any(name.startswith(f"{package.split(':')[1]}-") for name in here)
    ]


def _repository(config: Mapping[str, str]) -> dict[str, str]:
    """The repository of the packages, unless configured otherwise.

    Other tools' files in a local Maven repository are ignored: they may be a description
    without its jar, on which Spark fails.
    """
    if "DEFAULT_ARTIFACT_REPOSITORY" in os.environ or "spark.jars.repositories" in config:
        return {}
    return {"spark.jars.ivySettings": str(_SETTINGS)}


@cache
def _archive() -> Path:
    """A zip of our packages, named after its contents."""
    root = Path(__file__).parents[2]
    content = {
        str(path.relative_to(root)): path.read_bytes()
        for package in PACKAGES
        for path in sorted((root / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:12]
    directory = tempfile.mkdtemp(prefix="counterpoise-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    archive = Path(directory, f"counterpoise-{digest}.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(name, data)
    return archive
