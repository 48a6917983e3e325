"""How commands reach a cluster."""

import pytest

from timestone_cli.errors import UsageError
from timestone_cli.live.cluster_access import cluster_module, tls_context, with_etcd

NOTHING = {name: None for name in ("ca", "certificate", "key", "user", "password_file")}


def test_connections_are_without_tls_when_no_certificate_is_given() -> None:
    assert tls_context(NOTHING) is None


def test_url_that_names_no_cluster_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="invalid cluster"):
        with_etcd("plant", NOTHING, lambda etcd, keys: None)  # type: ignore[arg-type, return-value]


def test_host_that_cannot_be_looked_up_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"^invalid cluster: .* host, got 'a\.\.b'$"):
        with_etcd("etcd://a..b:2379/plant", NOTHING, lambda etcd, keys: None)  # type: ignore[arg-type, return-value]


def test_modules_of_the_cluster_are_found_by_their_name() -> None:
    assert cluster_module("operations").__name__ == "timestone_cluster.operations"
