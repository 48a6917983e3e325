"""The whole line on this machine: devices -> MQTT -> log -> Spark -> Parquet, with every count compared.

    python -m examples.demo [--messages N] [--devices N] [--directory DIR]

It starts a real server as a process of its own, drives it with a real MQTT client library and reads the live store with
Spark. It exits with 1 and one line as soon as two numbers that should be equal are not.
"""

import argparse
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.device import DeviceError
from examples.fleet import Fleet
from examples.server import Server, ServerError, timestone_command
from examples.tables import TableCounts, counted, first_rows
from timestone_pipeline import PipelineConfig, SourceConfig, SparkConfig, TablesConfig, session_of
from timestone_pipeline import run as run_pipeline

LOG = "mqtt"
"""Where the server puts what no other log was configured for."""
SERVER_LOG = "server.log"
"""In the directory of a demo, which is known by it."""
DEFAULT_CONSOLE = "127.0.0.1:9465"
PROCESS_COUNT = 2
"""Processes for the simulated devices; the server has one of its own."""
SHOWN_ROWS = 8
SHORT_RUN = SparkConfig(conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
"""In half a minute Java's second compiler does not pay for itself."""


class Mismatch(Exception):
    """Two counts that should be equal are not."""


class NotOurs(Exception):
    """The directory is not to be deleted: another demo uses it, or it holds what no demo has made."""


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep a second demo from deleting the directory under this one. Raises NotOurs."""
    directory = directory.absolute()
    if directory.exists() and any(directory.iterdir()) and not (directory / SERVER_LOG).exists():
        raise NotOurs(f"{directory} has files that no demo has made; choose another --directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(directory.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotOurs(f"another demo runs in {directory}; wait, or choose another --directory") from None
        yield


def main(words: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--messages", type=int, default=100_000, metavar="N", help="how many messages altogether (100000)"
    )
    parser.add_argument(
        "--devices", type=int, default=200, metavar="N", help="how many devices send them (200)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("build/demo"),
        metavar="DIR",
        help="made again at each run (build/demo)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        default=os.environ.get("DEMO_KEEP", "") not in ("", "0"),
        help="serve what was made until Ctrl-C, so that the console shows it (DEMO_KEEP=1)",
    )
    arguments = parser.parse_args(words)
    if min(arguments.messages, arguments.devices) < 1:
        parser.error("--messages and --devices are 1 at least")
    console = Console(highlight=False)
    try:
        with alone_in(arguments.directory):
            run(console, arguments.directory, arguments.devices, arguments.messages)
            look_around(console, arguments.directory, keep=arguments.keep)
    except (NotOurs, Mismatch, DeviceError, ServerError) as error:
        console.print(f"demo: {error}", style="bold red", soft_wrap=True, markup=False)
        return 1
    return 0


def run(console: Console, directory: Path, device_count: int, message_count: int) -> None:
    """Each station of the line in turn. Raises Mismatch, DeviceError or ServerError."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    data, tables = directory / "data", directory / "tables"
    started = time.monotonic()

    with Server(data, directory / SERVER_LOG) as server:
        say(console, "serve", f"timestone serve --data {data} --mqtt {server.host}:{server.port}")
        if reason := server.slow_because():
            say(console, "slow", reason)
        say(console, "publish", f"{message_count:,} messages from {device_count} devices, QoS 1")
        published, acknowledged = publish(console, server, device_count, message_count)
        check(console, "published", published, "asked for", message_count)
        check(console, "acknowledged", acknowledged, "published", published)

        say(console, "inspect", f"timestone inspect {data}")
        stored = inspect(data)
        check(console, "stored", stored, "acknowledged", acknowledged)

        say(console, "spark", f"timestone pipeline run --once --final: {data} -> {tables}")
        counts = pipeline(console, data, tables)
        check(console, "rows in Spark", counts.rows, "stored", stored)
        check(console, "different offsets in Spark", counts.offsets, "stored", stored)
        check(console, "clean messages in Parquet", counts.clean, "stored", stored)
        check(console, "messages in windows of a minute", counts.counted, "stored", stored)
        check(
            console,
            "devices in Parquet",
            counts.devices,
            "devices with messages",
            min(device_count, message_count),
        )

        server.stop()
    report_after = inspect_json(data, running=False)
    check(
        console, "stored after the server has stopped", count_records(report_after), "stored before", stored
    )
    say(
        console,
        "done",
        f"published = acknowledged = stored = rows in Spark = messages in Parquet = {stored:,}"
        f" ({time.monotonic() - started:.0f} s)",
    )


def look_around(console: Console, directory: Path, *, keep: bool) -> None:
    """Say how to see it in a browser; with `keep`, serve until Ctrl-C."""
    data, settings = directory / "data", pipeline_settings(directory)
    if not keep:
        say(console, "see it", f"timestone console {data} --pipeline {settings}   or DEMO_KEEP=1 make demo")
        return
    say(console, "see it", "in a browser, at the address of the console below, until Ctrl-C")
    words = ["--data", str(data), "--mqtt", "127.0.0.1:0", "--console-pipeline", str(settings)]
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        subprocess.run(timestone_command("serve", *words, "--console", console_address()), check=False)


def console_address() -> str:
    """Return the usual address of a console; with a free port if another server has that one."""
    host, _, port = DEFAULT_CONSOLE.partition(":")
    with socket.socket() as probe:
        return f"{host}:0" if probe.connect_ex((host, int(port))) == 0 else DEFAULT_CONSOLE


def pipeline_settings(directory: Path) -> Path:
    """Write the settings of the pipeline that the demo ran, for commands, and return the file."""
    file = directory / "pipeline.toml"
    paths = {"data": directory / "data", "tables": directory / "tables"}
    quoted = {name: json.dumps(str(path.absolute())) for name, path in paths.items()}
    file.write_text(
        f'[source]\npath = {quoted["data"]}\nlogs = ["{LOG}"]\n\n[tables]\npath = {quoted["tables"]}\n',
        "utf-8",
    )
    return file


def publish(console: Console, server: Server, device_count: int, message_count: int) -> tuple[int, int]:
    """Let the devices send; returns how many messages were published and how many acknowledged."""
    fleet = Fleet(
        server.host,
        server.port,
        device_count=device_count,
        message_count=message_count,
        process_count=min(PROCESS_COUNT, device_count),
    )
    bar = Progress(
        TextColumn("  acknowledged"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with fleet, bar:
        task = bar.add_task("publish", total=message_count, rate=0.0)
        started = shown_at = time.monotonic()
        finished = False
        while not finished:
            finished = fleet.wait(0.2)
            now = time.monotonic()
            rate = fleet.acknowledged / (now - started)
            bar.update(task, completed=fleet.acknowledged, rate=rate)
            if not console.is_terminal and (finished or now - shown_at > 2):
                shown_at = now
                console.print(f"  acknowledged {fleet.acknowledged:,} of {message_count:,}, {rate:,.0f}/s")
        return fleet.published, fleet.acknowledged


def inspect(data: Path) -> int:
    """Show `timestone inspect` as a user sees it; returns the number of records it counts."""
    sys.stdout.flush()
    subprocess.run(timestone_command("inspect", str(data)), check=False)
    return count_records(inspect_json(data, running=True))


def inspect_json(data: Path, *, running: bool) -> dict[str, Any]:
    """What `timestone inspect --json` says. Raises Mismatch for anything but a clean store, or one being written."""
    done = subprocess.run(
        timestone_command("inspect", str(data), "--json"), stdout=subprocess.PIPE, check=False
    )
    # 0 is a clean store, 1 one with an unclosed segment: a server is still writing it.
    if done.returncode not in ((0, 1) if running else (0,)):
        raise Mismatch(
            f"timestone inspect {data} ended with exit code {done.returncode}, which is not clean (0)"
        )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def count_records(report: dict[str, Any]) -> int:
    """Records of the demo's log in a report of `inspect --json`."""
    return sum(log["records"] for log in report["logs"] if log["log"] == LOG)


def pipeline(console: Console, data: Path, tables: Path) -> TableCounts:
    """Run the pipeline over the log, count what it made and show the first rows."""
    config = PipelineConfig(
        source=SourceConfig(path=str(data), logs=(LOG,)),
        tables=TablesConfig(path=str(tables)),
        spark=SHORT_RUN,
    )
    with console.status("starting Java and Spark"):
        spark = session_of(config, scans=False)
    try:
        with console.status("bronze, clean, windows, last"):
            # A log that has ended: also the last windows are closed.
            run_pipeline(config, spark, once=True, final=True)
        counts = counted(spark, tables)
    finally:
        spark.stop()
    console.print(first_rows(tables, SHOWN_ROWS))
    return counts


def check(console: Console, left: str, left_count: int, right: str, right_count: int) -> None:
    """Say that two counts are equal, or raise Mismatch, which names both."""
    if left_count != right_count:
        raise Mismatch(f"{left} ({left_count:,}) is not {right} ({right_count:,})")
    console.print(f"  [green]equal[/green]  {left} = {right} = {left_count:,}")


def say(console: Console, station: str, text: str) -> None:
    """Announce a station of the line."""
    console.print(f"[bold]{station:8}[/bold] ", end="")
    console.print(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
