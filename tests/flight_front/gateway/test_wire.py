import json
from pathlib import Path

from flight_front.gateway.wire import (
    ForwardedContext,
    Progress,
    Span,
    decoded_progress,
    decoded_span,
    encoded,
    forwarded,
)
from flight_front.settings import FlightSettings, ListenerSettings


class Context:
    """Context of a call of a client."""

    read = write = send_initial_metadata = None

    def __init__(self, *metadata: tuple[str, str | bytes]) -> None:
        self._metadata = metadata

    def peer(self) -> str:
        return "ipv4:192.0.2.1:4711"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_common_name": [b"caf\xc3\xa9"], "transport_security_type": [b"ssl"]}

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._metadata


def listener(user_from: str) -> ListenerSettings:
    files = {"certificate": Path("c"), "client_ca": Path("ca")}
    return FlightSettings(listen="127.0.0.1:0", user_from=user_from, **files).listener  # type: ignore[arg-type]


def test_span_and_progress_come_back_as_they_were_sent() -> None:
    span, progress = Span("t", 3, 1 << 63, 7, 1 << 40), Progress(None, 4, 5)
    assert decoded_span(encoded(span)) == span
    assert decoded_progress(encoded(progress)) == progress


def test_client_behind_a_gateway_has_its_address_and_its_names() -> None:
    own = Context(("authorization", "Basic x"), ("user-agent", "grpc"))
    for user_from, names in (("login", {}), ("cn", {"x509_common_name": [b"caf\xc3\xa9"]})):
        settings = listener(user_from)
        behind = ForwardedContext(Context(*forwarded(own, settings)), settings)
        assert behind.peer() == own.peer()
        assert behind.auth_context() == names


def test_metadata_of_a_client_is_left_out_but_for_its_credentials() -> None:
    named = json.dumps({"peer": "ipv4:192.0.2.9:1", "names": []}).encode()
    own = Context(("timestone-client-bin", named), ("authorization", "Basic x"), ("authorization", "Basic y"))
    sent = forwarded(own, listener("login"))
    assert [key for key, _ in sent] == ["authorization", "timestone-client-bin"]
    assert dict(sent)["authorization"] == "Basic x"
    assert json.loads(dict(sent)["timestone-client-bin"])["peer"] == own.peer()
