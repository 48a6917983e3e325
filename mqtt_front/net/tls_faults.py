"""Descriptions of TLS handshake failures that name the side and the setting to change."""

import ssl

_HANDSHAKE = 0x16
_SSL_2_HELLO = 0x80
_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN")
_MQTT_CONNECT = 0x10

# Numbers of X509_V_ERR_…, unchanged in OpenSSL since 1998.
_CERTIFICATE_FAULTS = {
    2: "is signed by an unknown CA",
    7: "is signed by another key than that of the known CA of that name",
    9: "is not valid yet",
    10: "has expired",
    12: "cannot be checked: the revocation list has expired",
    3: "cannot be checked: the revocation list of its CA is missing",
    18: "is self-signed and not trusted",
    19: "is signed by an unknown CA",
    20: "is signed by an unknown CA",
    21: "is signed by an unknown CA",
    23: "is revoked",
    26: "is not made for clients",
}
_HANDSHAKE_FAULTS = {
    "HTTP_REQUEST": "it sends HTTP without TLS, on a port with TLS",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate, and this listener wants one",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that is allowed here",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks no version of TLS that is allowed here",
    "VERSION_TOO_LOW": "it speaks no version of TLS that is allowed here",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with this server",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "it has no signature algorithm in common with this server",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the CA of this server's certificate",
    "TLSV1_ALERT_DECRYPT_ERROR": "it knows another CA of the same name as that of this server's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that this server's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this server's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this server's certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept this server's certificate",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says that this server's certificate is revoked",
    "TLSV1_UNRECOGNIZED_NAME": "it asks for another server name",
}


def handshake_fault(error: ssl.SSLError) -> str:
    """Return the reason of a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        fault = _CERTIFICATE_FAULTS.get(error.verify_code)
        return f"its certificate {fault}" if fault else f"its certificate is refused: {error.verify_message}"
    reason = error.reason or "no reason given"
    return _HANDSHAKE_FAULTS.get(reason) or f"the TLS handshake failed: {reason.replace('_', ' ').lower()}"


def no_tls(start: bytes) -> str | None:
    """Return what the first bytes on a TLS port are instead of TLS; None if they are TLS."""
    if start[0] in (_HANDSHAKE, _SSL_2_HELLO):
        return None
    if start[0] == _MQTT_CONNECT:
        return "it sends MQTT without TLS, on a port with TLS"
    if any(start[: len(method)] == method[: len(start)] for method in _METHODS):
        return "it sends HTTP without TLS, on a port with TLS"
    return f"its first byte is 0x{start[0]:02X}, which is not TLS, on a port with TLS"
