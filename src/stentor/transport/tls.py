"""TLS from PEM files, with errors that say which file is wrong, or what the other side objects to.

Contexts accept TLS 1.2 and 1.3, and 1.3 is used if both sides have it. A server that is given a
`ca` requires a certificate signed by it from everybody who connects (mutual TLS, as between
brokers); the common name in it then says who that is.

OpenSSL's own messages are for those who know OpenSSL. `explained` turns what it raises during or
after a handshake into a `TlsError` in plain words. With TLS 1.3 a client is done with its handshake
before the server has looked at the client's certificate, so a refusal may also come as the
reason for which an open connection is closed.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, cast

from stentor.errors import TlsError

#: What verification found, by OpenSSL's verify code: what is wrong, and what to do.
_UNTRUSTED: Final = {
    9: "the certificate is not valid yet; check the clocks of both machines",
    10: "the certificate has expired; renew it",
    18: "the certificate is self-signed; give it, or who signed it, as the CA file",
    19: "the certificate chain ends in a CA that is not trusted here; give it as the CA file",
    20: "the certificate was signed by a CA that is not trusted here; give that as the CA file",
    21: "the certificate was signed by a CA that is not trusted here; give that as the CA file",
    23: "the certificate was revoked; get a new one",
    26: "the certificate is not meant for this purpose; see its extended key usage",
    62: "the certificate is for another host name; connect under a name that it contains",
    64: "the certificate is for another IP address; connect under a name that it contains",
}

#: What OpenSSL calls it, and what it means. Alerts are what the other side says.
_NOT_TLS: Final = "the other side does not speak TLS; connect without tls:// or enable TLS there"
_REASONS: Final = {
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "HTTP_REQUEST": _NOT_TLS,
    "HTTPS_PROXY_REQUEST": _NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "UNSUPPORTED_PROTOCOL": "the two sides have no TLS version in common; 1.2 is the oldest",
    "TLSV1_ALERT_PROTOCOL_VERSION": (
        "the two sides have no TLS version in common; 1.2 is the oldest"
    ),
    "NO_SHARED_CIPHER": "the two sides have no cipher in common",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the other side refused the handshake: no cipher in common, or a certificate is required"
    ),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and one is required here",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "the other side requires a certificate; connect with a certificate and its key"
    ),
    "TLSV1_ALERT_UNKNOWN_CA": (
        "the other side does not trust the CA that signed our certificate; "
        "it must have that as its CA file"
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": (
        "the other side refused our certificate: it has expired; renew it"
    ),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the other side refused our certificate: it was revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": (
        "the other side refused our certificate: it is damaged, or for another name"
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side refused our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": (
        "the other side refused our certificate: it is not meant for this purpose"
    ),
    "TLSV1_ALERT_ACCESS_DENIED": "the other side denied access to our certificate",
    "UNEXPECTED_EOF_WHILE_READING": "the other side ended the connection without a word",
}


#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the module `ssl` has no name for.
_NO_CHECK_TIME: Final = 0x200000


def server_context(
    certificate: Path | str, key: Path | str, ca: Path | str | None = None
) -> ssl.SSLContext:
    """For listening. With `ca`, everybody must show a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_chain(context, Path(certificate), Path(key))
    if ca is not None:
        _load_ca(context, Path(ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    ca: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    verify_name: bool = True,
) -> ssl.SSLContext:
    """For connecting. Without `ca`, the authorities that the machine trusts count.

    Without `verify_name`, any certificate that the CA signed is accepted, whatever name is in it:
    for a CA that signs brokers only.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = verify_name
    if ca is not None:
        _load_ca(context, Path(ca))
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if certificate is not None:
        # A PEM file may hold both.
        _load_chain(context, Path(certificate), Path(certificate if key is None else key))
    elif key is not None:
        raise TlsError(f"there is a key, {key}, but no certificate that it belongs to; give both")
    return context


def peer_name(ssl_object: ssl.SSLObject | None) -> str | None:
    """The common name in the certificate of the other side, if it showed one that was verified.

    A certificate with several common names names nobody.
    """
    if ssl_object is None:
        return None
    certificate = ssl_object.getpeercert()  # empty unless it was verified
    if not certificate:
        return None
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ()))
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    return names[0] if len(names) == 1 else None


def expiry(certificate: Path | str, key: Path | str) -> float | None:
    """When a certificate ends, in seconds since 1970; None if it is not known.

    The module `ssl` shows the contents of a certificate to the other side of a connection only, and
    only if that trusts it. So it is shown to a client in this process that trusts it by itself.
    """
    server = server_context(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(one, other)
    shows = server.wrap_bio(other, one, server_side=True)
    for _ in range(4):
        for side in (asks, shows):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
    ends = (asks.getpeercert() or {}).get("notAfter")
    return ssl.cert_time_to_seconds(ends) if isinstance(ends, str) else None


def explained(error: BaseException, peer: str) -> TlsError:
    """What went wrong between the two sides, in words that help.

    >>> failure = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    >>> failure.reason = "WRONG_VERSION_NUMBER"
    >>> print(explained(failure, "tls://b1:7411"))
    TLS with tls://b1:7411: the other side does not speak TLS; connect without tls:// or ...
    """
    if isinstance(error, TlsError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        found = _UNTRUSTED.get(error.verify_code, error.verify_message)
        said = str(getattr(error, "verify_message", ""))
        if error.verify_code in (62, 64) and said:
            found = f"{found} ({said.rstrip('.')})"
        return TlsError(f"TLS with {peer}: {found}")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        meaning = _REASONS.get(reason) or reason.replace("_", " ").lower() or str(error)
        return TlsError(f"TLS with {peer}: {meaning}")
    if isinstance(error, ssl.CertificateError | ValueError):
        return TlsError(f"TLS with {peer}: {error}")
    if isinstance(error, TimeoutError):
        return TlsError(
            f"TLS with {peer}: the handshake was not finished in time; is that a TLS port?"
        )
    return TlsError(
        f"TLS with {peer}: the connection ended during the handshake; "
        "the log of the other side says why"
    )


# -- files


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    _check_pem(certificate, "certificate", b"-----BEGIN CERTIFICATE-----")
    _check_pem(key, "key", b"PRIVATE KEY-----")

    def no_password() -> str:
        # Without this, OpenSSL would ask at the terminal and a service would hang.
        raise TlsError(
            f"the key {key} is encrypted; decrypt it, and protect it by file permissions"
        )

    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"the key {key} does not belong to the certificate {certificate}; "
                "give the key that the certificate was made for"
            ) from error
        if error.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
            raise TlsError(
                f"the certificate {certificate} is too weak "
                f"({error.reason.replace('_', ' ').lower()}); make one with a longer key"
            ) from error
        raise TlsError(
            f"the certificate {certificate} or its key {key} is damaged, or of a kind that "
            f"OpenSSL cannot read: {error.reason or error}"
        ) from error


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    _check_pem(ca, "CA file", b"-----BEGIN CERTIFICATE-----")
    try:
        context.load_verify_locations(cafile=ca)
    except ssl.SSLError as error:
        raise TlsError(f"the CA file {ca} is damaged: {error.reason or error}") from error


def _check_pem(path: Path, what: str, marker: bytes) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TlsError(f"the {what} {path} does not exist; check the path") from None
    except PermissionError:
        raise TlsError(
            f"the {what} {path} may not be read by this user; change its permissions"
        ) from None
    except OSError as error:
        raise TlsError(f"the {what} {path} cannot be read: {error.strerror}") from None
    if marker not in content:
        raise TlsError(
            f"the {what} {path} is not in PEM format: it has no line with {marker.decode()!r}"
        )
