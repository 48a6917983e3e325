import base64

import pytest

from tests.support.scram_client import ScramClient
from timestone_access.passwords.scram import ScramExchange, ScramRefused
from timestone_access.passwords.scram_decoys import ScramDecoys
from timestone_access.passwords.scram_hash import ScramSha256, hash_scram

USERS = {"user": ScramSha256(hash_scram(b"pencil")), "a,b=c": ScramSha256(hash_scram(b"comma"))}


def exchange() -> ScramExchange:
    return ScramExchange(USERS.get, ScramDecoys(USERS.values()))


def test_exchange_agrees_with_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    record = ScramSha256(hash_scram(b"pencil", salt=salt, iterations=4096))
    server = ScramExchange(
        {"user": record}.get, ScramDecoys([record]), nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert server.final(final) == (record, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("gs2", ["n,,", "y,,", "n,a=user,"])
def test_exchange_proves_client_and_server(gs2: str) -> None:
    server, client = exchange(), ScramClient("user", "pencil", gs2=gs2)
    record, answer = server.final(client.final(server.first(client.first())))
    assert record is USERS["user"] and server.user == "user"
    assert client.trusts(answer)


def test_user_names_may_contain_commas_and_equals_signs() -> None:
    server, client = exchange(), ScramClient("a=2Cb=3Dc", "comma")
    server.final(client.final(server.first(client.first())))
    assert server.user == "a,b=c"


def refusal(server: ScramExchange, client: ScramClient) -> str:
    with pytest.raises(ScramRefused) as error:
        server.final(client.final(server.first(client.first())))
    assert "pencil" not in str(error.value)
    return str(error.value)


def test_a_wrong_password_is_refused() -> None:
    assert refusal(exchange(), ScramClient("user", "Pencil")) == "wrong proof for user 'user'"


def test_unknown_user_is_indistinguishable_until_the_end() -> None:
    answers = {exchange().first(ScramClient("stranger", "x").first()).partition(b",")[2] for _ in range(3)}
    assert len(answers) == 1, "a salt that changed would tell"
    record = ScramSha256(hash_scram(b"pencil", iterations=5000))
    alone = ScramExchange({"user": record}.get, ScramDecoys([record]))
    answer = alone.first(ScramClient("stranger", "x").first())
    assert answer.endswith(b",i=5000"), "and so would iterations that no user of the file has"
    assert refusal(exchange(), ScramClient("stranger", "x")) == "unknown user 'stranger'"


def test_replayed_messages_are_refused() -> None:
    server, client = exchange(), ScramClient("user", "pencil")
    overheard = client.final(server.first(client.first()))
    server.final(overheard)
    again = exchange()
    again.first(client.first())
    with pytest.raises(ScramRefused, match="final SCRAM message of another exchange"):
        again.final(overheard)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (b"", "invalid first SCRAM message"),
        (b"n,,n=user", "invalid first SCRAM message"),
        (b"n,,n=,r=x", "invalid first SCRAM message"),
        (b"n,,m=ext,n=user,r=x", "invalid first SCRAM message"),
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"n,a=root,n=user,r=x", "act for another user"),
        (b"n,,n=a=b,r=x", "invalid .=. in a SCRAM user name"),
        (b"n,,n=user,r=\x80", "not valid UTF-8"),
        (b"n,,n=" + b"x" * 5000 + b",r=x", "bytes"),
    ],
)
def test_invalid_first_message_is_refused(message: bytes, complaint: str) -> None:
    with pytest.raises(ScramRefused, match=complaint):
        exchange().first(message)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=!"),
        (b",p=", b",p=!"),
        (b",p=", b",p=AAAA"),
        (b",r=", b",r=x"),
        (b",p=", b",q="),
    ],
)
def test_changed_last_message_is_refused(old: bytes, new: bytes) -> None:
    server, client = exchange(), ScramClient("user", "pencil")
    final = client.final(server.first(client.first())).replace(old, new)
    with pytest.raises(ScramRefused):
        server.final(final)
