"""Where to ask in a cluster: any of its nodes says which addresses there are and who leads each partition."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.flight as fl

from pyspark_timestone.flight.connection import AWAY, FAILED, Headers, connection
from pyspark_timestone.options.flight_server import FlightServer

_ASK_S = 5.0
"""Time for a node to answer: one that is suspended takes connections and says nothing."""


class Places:
    """Nodes of one cluster. Nothing is kept of an answer, because the next connection is made after a failure; the
    connection to the node that answered is, for its login. Used by one thread."""

    def __init__(self, server: FlightServer) -> None:
        self._server = server
        self._addresses = list(server.nodes)
        self._turns = itertools.count()
        self._open: tuple[str, Any, Headers] | None = None

    def any_node(self) -> str:
        """Return the address of a node that answers. Raises FlightUnavailableError."""
        self.now()
        return self._addresses[0]

    def leader(self, partition: int) -> str:
        """Return the address of the node that leads a partition. Raises FlightUnavailableError while none does, or no
        node answers."""
        found = self.now()
        address = _leader(found, partition)
        if address is None:
            raise fl.FlightUnavailableError(f"no node with Flight leads partition {partition} now")
        return address

    def leaders(self) -> Mapping[int, str]:
        """Return the addresses of all leaders by partition. Raises FlightUnavailableError as `leader`."""
        found = self.now()
        leaders = {number: _leader(found, number) for number in range(len(found["shards"]))}
        missing = [number for number, address in leaders.items() if address is None]
        if missing or not leaders:
            raise fl.FlightUnavailableError(
                f"no node with Flight leads partition {missing[0] if missing else 0} now"
            )
        return {number: address for number, address in leaders.items() if address is not None}

    def replica(self, partition: int) -> str:
        """Return the address of a node with the records of a partition, each time that of another one."""
        found = self.now()
        shards = found["shards"]
        nodes: Sequence[str] = shards[partition]["in_sync"] if partition < len(shards) else ()
        addresses = [one for one in (_address(found, node) for node in nodes) if one is not None]
        if not addresses:
            raise fl.FlightUnavailableError(f"no node has partition {partition} now")
        # Tasks of one query begin with different replicas.
        start = id(self) // 64 if len(addresses) > 1 else 0
        return addresses[(start + next(self._turns)) % len(addresses)]

    def now(self) -> Mapping[str, Any]:
        """Return what one of the nodes says. Raises FlightUnavailableError if none answers."""
        failures = []
        for address in list(self._addresses):
            try:
                found = self._asked(address)
            except AWAY as error:
                text = str(error).partition(". gRPC client debug context")[0]
                failures.append(f"{address}: {text}")
                self._addresses.remove(address)
                self._addresses.append(address)  # the last one that is asked next time
                continue
            known = [one["address"] for one in found["nodes"].values() if one["address"] is not None]
            self._addresses += [one for one in known if one not in self._addresses]
            return found
        raise fl.FlightUnavailableError(f"no node of the cluster answers: {'; '.join(failures)}")

    def close(self) -> None:
        """End the connection; the next question makes another one."""
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()

    def _asked(self, address: str) -> Mapping[str, Any]:
        is_kept = self._open is not None and self._open[0] == address
        if not is_kept:
            self.close()
            self._open = (address, *connection(self._server, address))
        assert self._open is not None
        _, client, headers = self._open
        try:
            options = fl.FlightCallOptions(_ASK_S, headers=headers)
            [answer] = client.do_action(fl.Action("cluster", b"{}"), options)
        except FAILED as error:
            self.close()
            if is_kept and isinstance(error, fl.FlightUnauthenticatedError):
                return self._asked(address)  # its login has ended
            raise
        found: Mapping[str, Any] = json.loads(answer.body.to_pybytes())
        return found


def _leader(found: Mapping[str, Any], partition: int) -> str | None:
    shards = found["shards"]
    node = shards[partition]["leader"] if partition < len(shards) else None
    return None if node is None else _address(found, node)


def _address(found: Mapping[str, Any], node: str) -> str | None:
    address: str | None = found["nodes"].get(node, {"address": None})["address"]
    return address
