"""`timestone serve`: own a store and run every installed front on it, until a signal says stop.

Opens the store and reports what happens. `settings/serve.py` declares the settings, `server/server.py` runs the fronts.
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import timestone
from timestone.config import Ack
from timestone.errors import TimestoneError
from timestone.fronts import ENTRY_POINT_GROUP, Front
from timestone.kernel import loops
from timestone.kernel.allocator_tuning import keep_freed_memory
from timestone.store import Store

from ..errors import CommandError
from ..parser import given_path
from ..process.version import timestone_version
from ..server.fronts import installed_fronts
from ..server.metrics import MetricsPage
from ..server.server import Server, Service
from ..server.service_manager import ServiceManager
from ..settings.serve import ServeSettings, catalogue, front_settings, serve_settings, store_config
from ..settings.sources import read_configuration
from ..units import format_count

EXAMPLES = """\
examples:
  timestone serve                            data in ./timestone-data, MQTT on 127.0.0.1:1883
  timestone serve --data /var/lib/timestone --mqtt 127.0.0.1:0 --ack written
  timestone serve --config timestone.toml    every option can stand in the file
  TIMESTONE_DATA=/srv/log timestone serve    ... or in the environment, in capitals

An option goes before the environment, the environment before the file. In the file, --data and
--ack stand at the top, and the first word of the others is their table: --store-tail-bytes is
`tail_bytes` in [store]. Sizes and times may have units: "64 MiB", "7 d".

SIGTERM and SIGINT stop the server: no new clients, what was accepted is synced, segments are
sealed. A second signal does not wait for that. Nothing that was acknowledged as synced is lost
either way.
"""

_ACK_MEANING = {
    Ack.MEMORY: "acknowledged once accepted; lost when the process dies",
    Ack.WRITTEN: "acknowledged once in the page cache; survives kill -9, not power loss",
    Ack.SYNCED: "acknowledged after fdatasync; survives power loss",
}

_KEPT_BYTES = 256 << 20
"""Of the memory that the server has freed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `serve`: `--config`, and one for each setting of the engine and the installed fronts."""
    parser.usage = "timestone serve [--data DIR] [--mqtt HOST:PORT] [--ack LEVEL] [--config FILE] [options]"
    parser.description = "Own a store and let clients in, through every front that is installed."
    parser.epilog = EXAMPLES
    parser.add_argument("--config", metavar="FILE", type=given_path, help="read settings from this TOML file")
    for heading, settings in catalogue(installed_fronts()).items():
        group = parser.add_argument_group(heading)
        for setting in settings:
            options: dict[str, Any] = {"nargs": "?", "const": "true"} if setting.type is bool else {}
            group.add_argument(
                *setting.aliases,
                setting.option,
                dest=setting.key,
                metavar="VALUE",
                help=setting.describe().replace("%", "%%"),
                **options,
            )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; 0 after an orderly stop."""
    fronts = installed_fronts()
    settings = [setting for group in catalogue(fronts).values() for setting in group]
    given = {setting.key: getattr(arguments, setting.key) for setting in settings}
    configuration = read_configuration(
        settings,
        options={key: text for key, text in given.items() if text is not None},
        environment=os.environ,
        file=arguments.config,
    )
    own, config = serve_settings(configuration), store_config(configuration)
    settings_by_front = {name: front_settings(front, name, configuration) for name, front in fronts.items()}
    logging.basicConfig(
        stream=sys.stderr,
        level=own.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for remark in configuration.remarks:
        logging.getLogger("timestone.serve").warning("%s", remark)

    if own.ready_file is not None:
        own.ready_file.unlink(missing_ok=True)  # of a server that was killed: nobody may take it for ours
    manager = ServiceManager(os.environ)
    store = timestone.open(own.data, config=config, progress=manager.opening)
    try:
        store.accept_postings()
        _say_what_was_opened(store)
        running = [_created(fronts[name], store, of_front) for name, of_front in settings_by_front.items()]
    except BaseException:
        store.close()
        raise
    page = _metrics_page(store, running, own)
    services: list[Service] = [*running, *([] if page is None else [page])]
    server = Server(store, services, stop_timeout_s=own.stop_timeout_ms / 1000)
    keep_freed_memory(_KEPT_BYTES)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(server.run(lambda: _say_ready(store, running, page, own.ready_file, manager)))
    finally:
        if own.ready_file is not None:
            own.ready_file.unlink(missing_ok=True)
    _say("stopped")
    return 0


def _created(front: type[Front], store: Store, settings: Any) -> Front:
    try:
        return front(store, settings, log=logging.getLogger(f"timestone.{front.name}"))
    except (OSError, ValueError, TimestoneError) as error:
        raise CommandError(f"{front.name}: {error}") from error


def _metrics_page(store: Store, fronts: Sequence[Front], own: ServeSettings) -> MetricsPage | None:
    return None if own.metrics_address is None else MetricsPage(store, fronts, *own.metrics_address)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop where that is installed: it is much faster; None for asyncio's own, which works as well."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def _say(line: str) -> None:
    # Flushed line by line: under a supervisor standard output is a pipe, and this is what people look at when it hangs.
    print(line, flush=True)


def _say_what_was_opened(store: Store) -> None:
    # What was recovered in each log is in the engine's log lines, above on standard error.
    recovered = f", {len(store.recoveries)} of them recovered" if store.recoveries else ""
    _say(f"timestone {timestone_version()}, pid {os.getpid()}")
    _say(f"data  {store.path.resolve()}, {format_count(len(store.log_names()), 'log')}{recovered}")
    _say(f"ack   {store.config.ack.value}: {_ACK_MEANING[store.config.ack]}")
    if loops.REASON:
        _say(f"slow  the per-record work runs in Python, because {loops.REASON}")


def _say_ready(
    store: Store,
    fronts: Sequence[Front],
    page: MetricsPage | None,
    ready_file: Path | None,
    manager: ServiceManager,
) -> None:
    described = [line for front in fronts for line in front.describe()]
    described += [] if page is None else page.describe()
    for line in described:
        _say(line)
    if not fronts:
        _say(
            f"no front is installed (entry points {ENTRY_POINT_GROUP}): nothing listens, the store is only kept open"
        )
    if ready_file is not None:
        _write_ready_file(ready_file, store, fronts, page)
    _say("ready")
    manager.ready("; ".join(described))


def _write_ready_file(path: Path, store: Store, fronts: Sequence[Front], page: MetricsPage | None) -> None:
    """Written beside and renamed: whoever waits for the file never reads half of it."""
    state = {
        "pid": os.getpid(),
        "version": timestone_version(),
        "data": str(store.path.resolve()),
        "ack": store.config.ack.value,
        "fronts": {front.name: front.status() for front in fronts},
        **({} if page is None else {"metrics": page.address}),
    }
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    unfinished.rename(path)
