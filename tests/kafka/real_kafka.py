"""A real Apache Kafka on loopback, for tests: resolved by Maven once, up in seconds.

    with KafkaCluster(brokers=3) as kafka:
        kafka.bootstrap                                   # "127.0.0.1:20311,127.0.0.1:..."
        kafka.run_tool(REASSIGN_PARTITIONS, "--list")     # what the tool printed

Broker 0 is also the KRaft controller, so it is the one that cannot be stopped.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
HOST = "127.0.0.1"
JAVA = 17
CLUSTER_ID = "Y291bnRlcnBvaXNlLXRlcw"
START_SECONDS = 240.0

REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
BROKER = "kafka.Kafka"
STORAGE = "kafka.tools.StorageTool"
EXPORTER = "jmx_prometheus_javaagent"

# A small machine starts a broker faster when the JVM neither optimises hard nor
# keeps parallel collectors.
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")


class RealKafkaError(RuntimeError):
    """Kafka cannot be had, did not start, or a tool failed; says what to do in a sentence."""


def class_path(pom: Path = HERE / "pom.xml") -> str:
    """The class path of Kafka and its tools, or of another pom, resolved by Maven on first use.

    It is kept in ``$COUNTERPOISE_CACHE`` (``~/.cache/counterpoise`` unless set) under
    a name made from the pom, and used again for as long as its jars are there.

    Raises
    ------
    RealKafkaError
        Without Maven, or if it cannot resolve the pom.
    """
    cache = _cache()
    name = f"kafka-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}.classpath"
    kept = cache / name
    if kept.exists():
        resolved = kept.read_text().strip()
        if all(Path(jar).exists() for jar in resolved.split(os.pathsep)):
            return resolved
    mvn = shutil.which("mvn")
    if mvn is None:
        raise RealKafkaError("A real Kafka needs Maven: put `mvn` on the PATH.")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch) / name
        command = [mvn, "-B", "-q", "-f", str(pom), "dependency:build-classpath"]
        command += ["-Dmdep.includeScope=runtime", f"-Dmdep.outputFile={fresh}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode or not fresh.exists():
            said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
            reported = [x.removeprefix("[ERROR] ") for x in said.splitlines() if "[ERROR]" in x]
            raise RealKafkaError(
                f"Maven could not resolve {pom}, which it does over the network the first time: "
                f"{' '.join(reported[:1]) or 'it said nothing'}"
            )
        # Put in place in one step, so that a second test run never reads half of it.
        fresh.replace(kept)
    return kept.read_text().strip()


def _cache() -> Path:
    return Path(os.environ.get("COUNTERPOISE_CACHE") or "~/.cache/counterpoise").expanduser()


def _class_data(java: str, jars: Sequence[str]) -> Path:
    """A file from which Java loads a broker's classes in little more than half of the time.

    Java writes it when a broker ends that was started for this, once, and ignores one that does
    not fit.
    """
    binary = Path(java).resolve()
    said = [str(binary), str(binary.stat().st_mtime_ns), *jars]
    kept = _cache() / f"kafka-{hashlib.sha256(repr(said).encode()).hexdigest()[:12]}.jsa"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            fresh = Path(scratch) / kept.name
            cluster = KafkaCluster(1, directory=Path(scratch))
            cluster._shared_classes = f"-XX:ArchiveClassesAtExit={fresh}"
            # Without the file, brokers start as fast as Java alone lets them.
            with cluster, suppress(subprocess.TimeoutExpired):
                cluster._processes[0].terminate()
                cluster._processes[0].wait(START_SECONDS)
            if fresh.exists():
                fresh.replace(kept)
    return kept


def java() -> str:
    """The path of a Java new enough for Kafka 4, or a RealKafkaError."""
    found = shutil.which("java")
    needed = f"A real Kafka needs Java {JAVA} or newer:"
    if found is None:
        raise RealKafkaError(f"{needed} put `java` on the PATH.")
    said = subprocess.run([found, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA:
        raise RealKafkaError(f"{needed} {found} is {said.splitlines()[:1] or 'silent'}.")
    return found


class KafkaCluster:
    """Brokers 0 to n-1 in KRaft mode on loopback, each with its rack and log directories.

    Parameters
    ----------
    brokers
        How many, 1 to 6; broker 0 is the controller too.
    racks
        One a broker, None for no rack; ``rack-a``, ``rack-b``, ``rack-c`` in turn unless given.
    log_dirs
        How many log directories each broker has.
    heap
        Java heap of a broker.
    properties
        Server properties that replace or add to those of every broker.
    exporter
        Whether every broker carries the JMX exporter, which serves its metrics to
        Prometheus at its address in `exporters`.
    accounts
        Password by user: then every broker also serves clients that log in, at `guarded`. What the
        user ``admin`` and clients that do not log in may do has no limits; what others may do is
        what ACLs allow.
    directory
        Where data and logs go; a temporary directory unless given, which is removed at the end. Of
        a given one the logs (``broker-0.log``, ...) stay.
    first_port
        Port of broker 0; the others, the controller and the exporters have the next ones. Free
        ports unless given.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Sequence[str | None] | None = None,
        log_dirs: int = 2,
        heap: str = "256m",
        properties: Mapping[str, str] | None = None,
        exporter: bool = False,
        accounts: Mapping[str, str] | None = None,
        directory: Path | None = None,
        first_port: int | None = None,
    ) -> None:
        if not 1 <= brokers <= 6:
            raise ValueError(f"brokers: {brokers} found, 1 to 6 expected")
        self.racks = list(racks or (f"rack-{'abc'[i % 3]}" for i in range(brokers)))
        if len(self.racks) != brokers:
            raise ValueError(f"racks: {len(self.racks)} found, {brokers} (one a broker) expected")
        self.broker_ids = tuple(range(brokers))
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="counterpoise-kafka-"))
        self.log_dirs = tuple(
            tuple(str(self.directory / f"data-{i}" / f"disk-{d}") for d in range(log_dirs))
            for i in self.broker_ids
        )
        self._heap = heap
        # where Java keeps the classes of a broker that it has loaded, for others to load at once
        self._shared_classes: str | None = None
        self._properties = dict(properties or {})
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._printed_before: dict[int, int] = {}
        self._accounts = dict(accounts or {})
        count = brokers + 1 + brokers * (exporter + bool(accounts))
        # for as long as the cluster lives: a broker that starts again finds its port free
        self._held = ExitStack()
        ports = (
            self._held.enter_context(held_ports(count))
            if first_port is None
            else _fixed_ports(first_port, count)
        )
        self._ports, self._controller_port = ports[:brokers], ports[brokers]
        more = ports[brokers + 1 :]
        self._exporter_ports = more[: brokers * exporter]
        self._guarded_ports = more[brokers * exporter :]

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers: every broker as host:port, separated by commas."""
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    @property
    def guarded(self) -> str:
        """Bootstrap servers for clients that log in; empty without `accounts`."""
        return ",".join(f"{HOST}:{port}" for port in self._guarded_ports)

    @property
    def exporters(self) -> dict[int, str]:
        """Address of each broker's exporter, by broker id; empty without `exporter`."""
        return {i: f"http://{HOST}:{port}/metrics" for i, port in enumerate(self._exporter_ports)}

    def start(self) -> KafkaCluster:
        """Format the storage and start every broker; returns when all serve clients.

        Raises
        ------
        RealKafkaError
            Without Java or Maven, or with the end of the log of a broker that did not start.
        """
        self._java = java()
        jars = class_path().split(os.pathsep)
        (self._agent,) = (jar for jar in jars if EXPORTER in Path(jar).name)
        self._class_path = os.pathsep.join(jar for jar in jars if jar != self._agent)
        if self._shared_classes is None:
            self._shared_classes = f"-XX:SharedArchiveFile={_class_data(self._java, jars)}"
        try:
            self._format()
            for i in self.broker_ids:
                self._launch(i)
            for i in self.broker_ids:
                self._await_started(i)
        except BaseException:
            self.close()
            raise
        return self

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every broker at once and remove the data, and a directory that was not given."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        self._held.close()
        for gone in (
            [self.directory]
            if self._temporary
            else [self.directory / f"data-{i}" for i in self.broker_ids]
        ):
            shutil.rmtree(gone, ignore_errors=True)

    def fail_disk(self, broker: int, disk: int) -> None:
        """Put a file where a log directory of a running broker is: nothing can be made there.

        In one step, as the broker goes on writing until it notices.
        """
        lost = Path(self.log_dirs[broker][disk])
        gone = lost.rename(lost.with_name(f"{lost.name}-gone"))
        lost.write_text("no directory")
        shutil.rmtree(gone, ignore_errors=True)

    def run_tool(
        self,
        main_class: str,
        *args: str | os.PathLike[str],
        check: bool = True,
        of_files: bool = False,
    ) -> str:
        """Run a command line tool against the cluster, and return what it printed.

        Parameters
        ----------
        main_class
            For example :data:`REASSIGN_PARTITIONS`; ``--bootstrap-server`` is added.
        check
            Whether to raise if the tool's exit code is not 0.
        of_files
            Whether the tool reads files, and takes no server.

        Raises
        ------
        RealKafkaError
            With everything the tool printed.
        """
        command = self._command(main_class, "128m", "WARN")
        server = [] if of_files else ["--bootstrap-server", self.bootstrap]
        command += [*server, *(os.fspath(a) for a in args)]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_SECONDS
        )
        said = done.stdout + done.stderr
        if check and done.returncode:
            raise RealKafkaError(f"{main_class} ended with {done.returncode}:\n{said}")
        return said

    @contextmanager
    def stopped(self, broker: int) -> Iterator[None]:
        """Hold one broker (never 0, the controller) down for a while, then start it again."""
        if broker == 0:
            raise ValueError("broker 0 is the controller: it cannot be stopped")
        process = self._processes.pop(broker)
        process.terminate()
        try:
            process.wait(START_SECONDS)
            yield
        finally:
            process.kill()
            process.wait()
            self._launch(broker)
            self._await_started(broker)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold every broker still for a while, as SIGSTOP does: connections stay, none answers."""
        for process in self._processes.values():
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in self._processes.values():
                process.send_signal(signal.SIGCONT)

    def kill(self, broker: int) -> None:
        """End one broker at once, as ``kill -9`` does; also 0, and with it the controller."""
        process = self._processes.pop(broker)
        process.kill()
        process.wait()

    def restart(self, *brokers: int) -> None:
        """Start brokers that were killed again; returns when they serve clients."""
        for i in brokers:
            self._launch(i)
        for i in brokers:
            self._await_started(i)

    def renew(self, racks: Sequence[str | None] | None = None) -> None:
        """Start brokers that are down, with new disks for those that failed; 0 keeps its own.

        Parameters
        ----------
        racks
            Where brokers are from now on, one a broker; where they were unless given.
        """
        down = set(self.broker_ids) - self._processes.keys() | {*self.ended()}
        for i in self.broker_ids:
            if racks is not None and racks[i] != self.racks[i]:
                self.racks[i] = racks[i]
                self._configure(i)
                down.add(i)
            for failed in (path for path in map(Path, self.log_dirs[i]) if path.is_file()):
                failed.unlink()
                self._prepare(i, failed)
                down.add(i)
        for i in down & self._processes.keys():
            process = self._processes.pop(i)
            process.terminate()
            process.wait(START_SECONDS)
        self.restart(*down)

    def ended(self) -> list[int]:
        """Brokers that ended by themselves."""
        return [i for i, process in self._processes.items() if process.poll() is not None]

    def log(self, broker: int) -> Path:
        """The file that holds everything a broker printed."""
        return self.directory / f"broker-{broker}.log"

    def tail(self, broker: int) -> str:
        """The last lines of that file."""
        return "\n".join(self.log(broker).read_text(errors="replace").splitlines()[-20:])

    def _command(
        self, main_class: str, heap: str, level: str, agents: Sequence[str] = ()
    ) -> list[str]:
        shared = filter(None, (self._shared_classes,))
        options = (*JVM, *shared, *agents, f"-Xmx{heap}", f"-Dlog.level={level}")
        config = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        return [self._java, *options, config, "-cp", self._class_path, main_class]

    def _server_properties(self, i: int) -> dict[str, str]:
        copies = str(min(3, len(self.broker_ids)))
        controller = f"CONTROLLER://{HOST}:{self._controller_port}"
        broker = f"PLAINTEXT://{HOST}:{self._ports[i]}"
        guards = {}
        if self._accounts:
            broker += f",GUARDED://{HOST}:{self._guarded_ports[i]}"
            users = " ".join(f'user_{name}="{word}"' for name, word in self._accounts.items())
            guards = {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin;User:ANONYMOUS",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.guarded.plain.sasl.jaas.config": (
                    f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
                ),
            }
        rack = {} if self.racks[i] is None else {"broker.rack": str(self.racks[i])}
        return {
            "node.id": str(i),
            "process.roles": "broker" if i else "broker,controller",
            "controller.quorum.voters": f"0@{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": broker if i else f"{broker},{controller}",
            "advertised.listeners": broker,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT"
            ),
            "log.dirs": ",".join(self.log_dirs[i]),
            "auto.create.topics.enable": "false",
            # Only a test moves leaders.
            "auto.leader.rebalance.enable": "false",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # The cleaner's default buffer alone is half of the heap.
            "log.cleaner.dedupe.buffer.size": "4194304",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **rack,
            **guards,
            **self._properties,
        }

    def _format(self) -> None:
        for i in self.broker_ids:
            self._configure(i)
            for log_dir in self.log_dirs[i] if i else ():
                self._prepare(i, Path(log_dir))
        command = self._command(STORAGE, "128m", "WARN")
        command += ["format", "--cluster-id", CLUSTER_ID]
        command += ["--config", str(self.directory / "broker-0.properties")]
        with self.log(0).open("ab") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if done.returncode:
            raise RealKafkaError(f"formatting broker 0's storage failed:\n{self.tail(0)}")

    def _configure(self, i: int) -> None:
        config = self.directory / f"broker-{i}.properties"
        settings = self._server_properties(i).items()
        config.write_text("".join(f"{k}={v}\n" for k, v in settings))

    @staticmethod
    def _prepare(i: int, log_dir: Path) -> None:
        """Write all that Kafka's tool writes for a node that is no controller, in no time."""
        log_dir.mkdir(parents=True)
        meta = log_dir / "meta.properties"
        meta.write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={i}\n")

    def _launch(self, i: int) -> None:
        config = self.directory / f"broker-{i}.properties"
        agents = [
            f"-javaagent:{self._agent}={HOST}:{port}:{HERE / 'exporter.yaml'}"
            for port in self._exporter_ports[i : i + 1]
        ]
        with self.log(i).open("ab") as log:
            # Only what is printed from now on tells whether this start succeeded.
            self._printed_before[i] = log.tell()
            self._processes[i] = subprocess.Popen(
                [*self._command(BROKER, self._heap, "INFO", agents), str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _await_started(self, i: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while b"Kafka Server started" not in self._printed(i):
            code = self._processes[i].poll()
            if code is not None:
                raise RealKafkaError(f"broker {i} ended with {code}:\n{self.tail(i)}")
            if time.monotonic() > deadline:
                raise RealKafkaError(
                    f"broker {i} did not start in {START_SECONDS:.0f} s:\n{self.tail(i)}"
                )
            time.sleep(0.05)

    def _printed(self, i: int) -> bytes:
        with self.log(i).open("rb") as log:
            log.seek(self._printed_before[i])
            return log.read()


def _fixed_ports(first: int, count: int) -> list[int]:
    ports = list(range(first, first + count))
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError):
                raise RealKafkaError(
                    f"port {port} cannot be used ({count} are needed, from {first} on): end what "
                    "uses it, or name another first port: make kafka PORT=19092"
                ) from None
    return ports


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Free ports that nothing takes until the servers they are for listen there, if they do.

    Clients are refused until then. A server that reuses addresses, as those of Java, Go and Python
    do, may listen at its port; another search for a free port, and what asks for any port, does
    not get it.
    """
    with ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            one = held.enter_context(socket.socket())
            # below the range of which outgoing connections have their ports
            port = random.SystemRandom().randrange(20000, 32000)
            with suppress(OSError):
                one.bind((HOST, port))
                # after it: several may hold one port that all of them reuse
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                ports.append(port)
        yield ports
