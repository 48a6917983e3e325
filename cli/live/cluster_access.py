"""How commands reach a cluster: the options of a connection to etcd, and the modules of the extra."""

import asyncio
import importlib
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from timestone.errors import MissingExtra

from ..errors import UsageError
from ..input.parameters import FILE

if TYPE_CHECKING:
    from timestone_cluster.etcd.client import EtcdClient
    from timestone_cluster.etcd.keys import ClusterKeys

T = TypeVar("T")


def connection(function: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options of a connection to etcd, as `access`, and the argument URL."""
    function = click.option("--user", metavar="NAME", help="User of etcd, where etcd has users.")(function)
    for name, text in (
        ("password-file", "File whose first line is the password of that user."),
        ("key", "PEM file with the key of that certificate."),
        ("certificate", "PEM file with the own certificate."),
        ("ca", "PEM file with who signs all certificates; connections are TLS then."),
    ):
        function = click.option(f"--{name}", type=FILE, help=text)(function)
    return click.argument("url", metavar="URL", help="The cluster.")(function)


def tls_context(access: dict[str, Any]) -> ssl.SSLContext | None:
    """Return what connections to nodes need; None without TLS."""
    certificates = _certificates(access)
    found: ssl.SSLContext | None = certificates.client_context() if certificates is not None else None
    return found


def with_etcd(
    url: str, access: dict[str, Any], work: "Callable[[EtcdClient, ClusterKeys], Awaitable[T]]"
) -> T:
    """Do some work with the cluster of a URL. Raises UsageError for a ValueError, MissingExtra."""
    certificates = _certificates(access)
    address_module = cluster_module("etcd.address")
    try:
        address = address_module.ClusterAddress.parse(url)
        etcd = address.client(
            certificates, address_module.read_login(access["user"], access["password_file"])
        )
    except (ValueError, ssl.SSLError) as error:
        raise UsageError(str(error)) from None

    async def run() -> T:
        async with etcd:
            return await work(etcd, address.keys)

    try:
        return asyncio.run(run())
    except ValueError as error:
        raise UsageError(str(error)) from None


def _certificates(access: dict[str, Any]) -> Any:
    given = [access[name] for name in ("ca", "certificate", "key")]
    if not any(given):
        return None
    if not all(given):
        raise UsageError("expected --ca, --certificate and --key together")
    return cluster_module("etcd.address").Certificates(*given)


def cluster_module(name: str) -> Any:
    """Return a module of the cluster. Raises MissingExtra."""
    try:
        return importlib.import_module(f"timestone_cluster.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("timestone"):
            raise
        raise MissingExtra("a cluster", error.name or "msgspec", "cluster") from None
