"""`timestone serve`: own a store and run every installed front on it, until a signal stops it.

Opens the store and reports what happens. `settings/serve.py` declares the settings, `server/server.py` runs the fronts.
"""

import asyncio
import importlib
import json
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import timestone
from timestone.address import parse_address
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.disk.access import is_open_to_all
from timestone.disk.files import Files
from timestone.disk.lock import is_owned
from timestone.errors import MissingExtra, TimestoneError
from timestone.format.names import CATALOG_NAME, LOCK_NAME
from timestone.fronts import ENTRY_POINT_GROUP, Checking, Front, OnEachNode, Replicated
from timestone.kernel.allocator_tuning import keep_freed_memory
from timestone.store import Store
from timestone.upkeep.stored_settings import settings_of_logs
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import TieringError

from ..control.service import ControlService
from ..errors import CommandError, UsageError
from ..group import Command, help_all_option
from ..input.log_names import check_new_store
from ..input.parameters import FILE
from ..output.text import fitted
from ..process.version import kernels_line, timestone_version
from ..process.workers import SOCKETS_VARIABLE, Workers, worker_sockets
from ..server.collection import Collection
from ..server.console import ConsoleService
from ..server.figures import Figures
from ..server.fronts import installed_fronts
from ..server.log_lines import log_to_standard_error
from ..server.metrics import MetricsPage
from ..server.server import Server, Service
from ..server.service_manager import VARIABLE, ServiceManager
from ..settings.cluster import ClusterSettings
from ..settings.options import given_texts, setting_options
from ..settings.serve import (
    OWN_HEADING,
    ServeSettings,
    catalogue,
    cluster_remarks,
    cluster_settings,
    console_settings,
    front_settings,
    replicated_fronts,
    serve_settings,
    store_config,
    tier_config,
)
from ..settings.sources import read_configuration
from ..settings.workers import worker_options, write_ready_file
from ..units import format_count

if TYPE_CHECKING:
    from timestone_tiering.buckets.bucket import Bucket

    from ..server.tier import TierService

EXAMPLES = """\
Examples:
  timestone serve                            data in ./timestone-data, MQTT on
                                             127.0.0.1:1883
  timestone serve --data /var/lib/timestone --mqtt 127.0.0.1:0 --ack written
  timestone serve --config timestone.toml    every option can be in the file
  timestone serve --help-all                 all options with their meaning
  TIMESTONE_DATA=/srv/log timestone serve    and in the environment

An option overrides the environment, the environment overrides the file. In the
file, the options under "Server" are at the top; the first word of all others is
their table: --store-tail-bytes is `tail_bytes` in [store].

A SIZE may have a unit (KiB, MiB, GiB, kB, MB, GB), a DURATION too (us, ms, s,
min, h, d): "64 MiB", "7 d". Without one, the end of the name is the unit. A
LIST is a,b or as in TOML, a TABLE as in TOML.

SIGTERM and SIGINT stop the server: it takes no new clients, syncs what was
accepted and seals segments. A second signal does not wait for that. What was
acknowledged as synced is safe either way.
"""

_ACK_MEANING = {
    Ack.MEMORY: "acknowledged once accepted; lost when the process dies",
    Ack.WRITTEN: "acknowledged in the page cache; survives kill -9, not power loss",
    Ack.SYNCED: "acknowledged after fdatasync; survives power loss",
}

_KEPT_BYTES = 256 << 20
"""How much memory the server keeps when it has freed it."""


class _Serve(Command):
    """The command with an option for each setting of the engine and of the installed fronts."""

    _declared = False

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if not self._declared:
            self._declared = True
            self.params.append(help_all_option())
            for heading, settings in catalogue(installed_fronts()).items():
                self.params += setting_options(settings, heading, is_common=heading == OWN_HEADING)
        return super().get_params(ctx)


@click.command(cls=_Serve, epilog=EXAMPLES)
@click.option("--config", metavar="FILE", type=FILE, help="Read settings from this TOML file.")
def command(config: Path | None, **given: Any) -> int:
    """Own a store and let clients in, through every front that is installed."""
    fronts = installed_fronts()
    settings = [setting for group in catalogue(fronts).values() for setting in group]
    texts = given_texts(settings, given)
    configuration = read_configuration(settings, options=texts, environment=os.environ, file=config)
    own, engine, tier = serve_settings(configuration), store_config(configuration), tier_config(configuration)
    console, cluster = console_settings(configuration), cluster_settings(configuration)
    served = fronts if cluster.etcd is None else replicated_fronts(fronts, configuration)
    settings_by_front = {name: front_settings(front, name, configuration) for name, front in served.items()}
    log_to_standard_error(own.log_level, own.log_format)
    for remark in (*configuration.remarks, *cluster_remarks(configuration)):
        logging.getLogger("timestone.serve").warning("%s", remark)

    _check_ready_file(own.ready_file)
    if own.workers > 1:
        options = worker_options(settings, texts, config, own, cluster, console[0], settings_by_front)
        return _run_workers(options, own)
    _check(own)
    existing = _existing_logs(own.data)
    for name, of_front in settings_by_front.items():
        _check_front(fronts[name], of_front, engine, existing)
    if own.ready_file is not None and not is_owned(Files(), own.data / LOCK_NAME):
        own.ready_file.unlink(missing_ok=True)  # of a server that was killed, not ours
    manager = ServiceManager(os.environ)
    bucket = _bucket(tier)
    store = _opened(own.data, engine, cluster, manager)
    _warn_of_readers(own.data)
    try:
        _say_what_was_opened(store)
        running = _fronts(store, served, settings_by_front, cluster)
        node = _node(store, cluster, running) if cluster.etcd is not None else None
        tiers = _tiers(store, tier, bucket, node)
    except BaseException:
        store.close()
        raise
    shown = [*running] if node is None else [node, *running]
    collection = Collection(store, [*shown, *tiers])
    page = None if own.metrics_address is None else MetricsPage(collection, *own.metrics_address)
    pages = ConsoleService.of(own, *console, shown)
    figures = _figures(collection, own)
    control = ControlService(store, [*shown, *tiers], figures[0].record_action if figures else None)
    # The figures first, so that they end last: they have what clients did until the end.
    services: list[Service] = [*figures, *tiers, *(running if node is None else [node])]
    services += [*([] if page is None else [page]), control, *pages]
    server = Server(store, services, stop_timeout_s=own.stop_timeout_ms / 1000)
    keep_freed_memory(_KEPT_BYTES)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(
                server.run(lambda: _say_ready(store, shown, tiers, page, pages, own.ready_file, manager))
            )
    finally:
        if own.ready_file is not None:
            own.ready_file.unlink(missing_ok=True)
    _say("stopped")
    return 0


def _run_workers(options: Mapping[str, Sequence[str]], own: ServeSettings) -> int:
    """Run the nodes of this machine as processes, and return the exit code."""
    own.data.mkdir(parents=True, exist_ok=True)
    _say(f"timestone {timestone_version()}, pid {os.getpid()}, {format_count(len(options), 'worker')}")
    manager = ServiceManager(os.environ)
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}  # it hears of all

    said = False

    def ready(names: Sequence[str]) -> None:
        nonlocal said
        if own.ready_file is not None:
            try:
                write_ready_file(own.ready_file, os.getpid(), names, own.data)
            except OSError as error:
                if not said:
                    raise
                logging.getLogger("timestone.serve").error(
                    "ready_file %s is not up to date: %s", own.ready_file, error
                )
        if not said:
            _say("ready")
            manager.ready(format_count(len(options), "worker"))
        said = True

    try:
        workers = Workers(options, environment, prefixes_log=own.log_format == "text")
        code = asyncio.run(workers.run(ready))
    finally:
        if own.ready_file is not None:
            own.ready_file.unlink(missing_ok=True)
    _say("stopped")
    return code


def _figures(collection: Collection, own: ServeSettings) -> list[Figures]:
    if not own.metrics_interval_ms:
        return []
    return [Figures(collection, own.metrics_interval_ms, own.recorded_clients)]


def _warn_of_readers(data: Path) -> None:
    """Warn if all users of this machine can read the data. New files are closed to them; those of earlier versions keep
    their permissions."""
    if is_open_to_all(data / CATALOG_NAME):
        logging.getLogger("timestone.serve").warning(
            "every user of this machine can read files in %s; to end that: chmod -R go= %s", data, data
        )


def _opened(data: Path, engine: StoreConfig, cluster: ClusterSettings, manager: ServiceManager) -> Store:
    """Return the store, of replicas for a node of a cluster."""
    if cluster.etcd is None:
        return timestone.open(data, config=engine, progress=manager.opening)
    # Not at the top: only a node needs it.
    from timestone.replication.replicated_log import ReplicatedLog  # noqa: PLC0415

    try:
        held_module = importlib.import_module("timestone_cluster.node.held_shards")
    except ModuleNotFoundError as error:
        raise MissingExtra("a cluster", error.name or "httpx", "cluster") from None
    held_module.note_failed_flushes(Files(), data.absolute())
    return Store(data.absolute(), engine, progress=manager.opening, log_type=ReplicatedLog)


def _node(store: Store, settings: ClusterSettings, fronts: Sequence[Front]) -> Any:
    """Return the node of a cluster, whose fronts serve, one of them while it leads. Raises UsageError, MissingExtra."""
    try:
        node_module = importlib.import_module("timestone_cluster.node.node")
        host_module = importlib.import_module("timestone_cluster.node.front_host")
        fronts_module = importlib.import_module("timestone_cluster.fronts.node_fronts")
        address_module = importlib.import_module("timestone_cluster.etcd.address")
    except ModuleNotFoundError as error:
        raise MissingExtra("a cluster", error.name or "msgspec", "cluster") from None
    log = logging.getLogger("timestone.serve")

    def failed(error: Exception) -> None:
        log.critical("the node stops: %s", error)
        os.kill(os.getpid(), signal.SIGTERM)

    tls = certificates = None
    try:
        address = address_module.ClusterAddress.parse(settings.etcd)
        if settings.ca is not None:
            certificates = address_module.Certificates(settings.ca, settings.certificate, settings.key)
            tls = node_module.Tls(certificates.server_context(), certificates.client_context())
        etcd = address.client(certificates, address_module.read_login(settings.user, settings.password_file))
    except (ValueError, OSError) as error:
        raise UsageError(f"cluster: {error}") from None
    siblings = None
    if SOCKETS_VARIABLE in os.environ:
        siblings = host_module.Siblings(*worker_sockets(os.environ[SOCKETS_VARIABLE], settings.name or ""))
    hosts = [
        host_module.FrontHost(
            front, store.documents, will_grace_s=settings.will_grace_s, failed=failed, siblings=siblings
        )
        for front in fronts
        if isinstance(front, Replicated)
    ]
    others = [front for front in fronts if isinstance(front, OnEachNode)]
    return node_module.Node(
        store,
        etcd,
        address.keys,
        name=settings.name or socket.gethostname(),
        zone=settings.zone or socket.gethostname(),
        weight=settings.weight,
        listen=parse_address(settings.listen, setting="cluster.listen"),
        advertise=settings.advertise,
        tls=tls,
        host=hosts[0] if hosts else None,
        fronts=fronts_module.NodeFronts(others, store) if others else None,
        failed=failed,
    )


def _check(own: ServeSettings) -> None:
    """Find what could not be done later, before anything is created. Raises UsageError."""
    if own.data.exists() and not own.data.is_dir():
        raise UsageError(f"invalid data directory {own.data}: it is not a directory")
    check_new_store(own.data)


def _check_ready_file(path: Path | None) -> None:
    """Raise UsageError for a file that cannot be written, or must not be removed, such as a device."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise UsageError(f"invalid ready_file {path}: {path.parent} is not a directory")
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise UsageError(f"invalid ready_file {path}: expected a regular file, or none")


def _existing_logs(data: Path) -> Mapping[str, LogConfig]:
    try:
        return {name: found for (name, partition), found in settings_of_logs(data).items() if partition == 0}
    except (OSError, TimestoneError):
        return {}  # opening the store reports it


def _check_front(
    front: type[Front], settings: Any, config: StoreConfig, existing: Mapping[str, LogConfig]
) -> None:
    offered: object = front
    if isinstance(offered, Checking):
        try:
            offered.check(settings, config, existing)
        except (OSError, ValueError) as error:
            raise UsageError(f"{front.name}: {error}") from error


def _fronts(
    store: Store,
    fronts: Mapping[str, type[Front]],
    settings: Mapping[str, Any],
    cluster: ClusterSettings,
) -> list[Front]:
    """Return what clients connect to. A node of a cluster takes no records of a spool."""
    if cluster.etcd is None:
        store.accept_postings()
    return [_created(fronts[name], store, of_front) for name, of_front in settings.items()]


def _created(front: type[Front], store: Store, settings: Any) -> Front:
    try:
        return front(store, settings, log=logging.getLogger(f"timestone.{front.name}"))
    except (OSError, ValueError, TimestoneError) as error:
        raise CommandError(f"{front.name}: {error}") from error


def _bucket(config: TierConfig) -> "Bucket | None":
    """Return the bucket of the tier, if there is to be one. Raises UsageError for a setting that is not valid or an
    extra that is not installed."""
    if config.url is None:
        return None
    # As below: only a server with a tier needs these modules.
    from timestone_tiering.buckets.bucket_url import open_bucket  # noqa: PLC0415

    try:
        return open_bucket(config.url, endpoint=config.endpoint, region=config.region)
    except TieringError as error:
        raise UsageError(f"tier: {error}") from error


def _tiers(
    store: Store, config: TierConfig, bucket: "Bucket | None", node: Any | None
) -> "list[TierService]":
    """Return the tier of the store, if it is to have one. node: of a cluster, whose state is not uploaded. Raises
    CommandError when it cannot be made."""
    if bucket is None:
        return []
    # Not at the top: a server without a tier starts without its modules and the client of the bucket.
    from timestone_tiering.tier import StoreTier  # noqa: PLC0415

    from ..server.tier import TierService  # noqa: PLC0415

    own_logs = [] if node is None else node.own_logs
    try:
        return [
            TierService(
                StoreTier(
                    store,
                    config,
                    bucket=bucket,
                    is_replicated=node is not None,
                    left_out=own_logs,
                    cluster=(lambda: None) if node is None else (lambda: node.description),
                )
            )
        ]
    except TieringError as error:
        raise CommandError(f"tier: {error}") from error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop of uvloop where that is installed, because it is faster; None for that of asyncio."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def _say(line: str) -> None:
    # Flushed line by line: under a supervisor standard output is a pipe, and it is read when the server hangs.
    print(fitted(line, sys.stdout), flush=True)


def _say_what_was_opened(store: Store) -> None:
    # What was recovered in each log is in the engine's log lines on standard error.
    logs = set(store.log_names())
    count = sum((one.log, one.partition) in logs for one in store.recoveries)
    recovered = f", {count} of them recovered" if count else ""
    _say(f"timestone {timestone_version()}, pid {os.getpid()}, {kernels_line()}")
    _say(f"data  {store.path.resolve()}, {format_count(len(logs), 'log')}{recovered}")
    _say(f"ack   {store.config.ack.value}: {_ACK_MEANING[store.config.ack]}")


def _say_ready(
    store: Store,
    fronts: Sequence[Front],
    tiers: "Sequence[TierService]",
    page: MetricsPage | None,
    consoles: Sequence[ConsoleService],
    ready_file: Path | None,
    manager: ServiceManager,
) -> None:
    described = [line for tier in tiers for line in tier.describe()]
    described += [line for front in fronts for line in front.describe()]
    described += [] if page is None else page.describe()
    described += [line for console in consoles for line in console.describe()]
    for line in described:
        _say(line)
    if not fronts:
        _say(
            f"no front is installed (entry points {ENTRY_POINT_GROUP}): the store is open, and nothing listens"
        )
    if ready_file is not None:
        _write_ready_file(ready_file, store, fronts, page, consoles)
    _say("ready")
    manager.ready("; ".join(described))


def _write_ready_file(
    path: Path,
    store: Store,
    fronts: Sequence[Front],
    page: MetricsPage | None,
    consoles: Sequence[ConsoleService],
) -> None:
    """Write beside it and rename, so that a process that waits for the file never reads half of it."""
    state = {
        "pid": os.getpid(),
        "version": timestone_version(),
        "data": str(store.path.resolve()),
        "ack": store.config.ack.value,
        "fronts": {front.name: front.status() for front in fronts},
        **({} if page is None else {"metrics": page.address}),
        **{console.name: console.address for console in consoles if console.address is not None},
    }
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    unfinished.rename(path)
