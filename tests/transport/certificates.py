"""Certificates for tests, made on the spot: authorities, servers, clients, and bad ones."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """The PEM files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A CA that keeps its files, and those it signs, in a directory."""

    def __init__(self, directory: Path, name: str = "Test CA") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._files = 0
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 2 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=True,
                    crl_sign=True,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )
        #: The certificate of the authority itself.
        self.certificate = self._write("ca", certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, expired: bool = False) -> Pair:
        """A certificate for these host names and IP addresses; if none, for this machine."""
        return self._issue(
            "broker",
            names or ("localhost", "127.0.0.1", "::1"),
            ExtendedKeyUsageOID.SERVER_AUTH,
            expired,
        )

    def client(self, *common_names: str, expired: bool = False) -> Pair:
        """A certificate for a client of this name."""
        return self._issue(common_names, (), ExtendedKeyUsageOID.CLIENT_AUTH, expired)

    def broker(self, common_name: str) -> Pair:
        """A certificate for a broker that connects and is connected to."""
        return self._issue(common_name, ("localhost", "127.0.0.1", "::1"), None, False)

    def _issue(
        self,
        subject: str | tuple[str, ...],
        names: tuple[str, ...],
        usage: x509.ObjectIdentifier | None,
        expired: bool,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        common_names = (subject,) if isinstance(subject, str) else subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(
                x509.Name(
                    [
                        x509.RelativeDistinguishedName(
                            [x509.NameAttribute(NameOID.COMMON_NAME, name)]
                        )
                        for name in common_names
                    ]
                )
            )
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now - _DAY if expired else now + _DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(
            self._write("certificate", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write("key", private_pem(key)),
        )

    def _write(self, what: str, content: bytes) -> Path:
        self._files += 1
        path = self._directory / f"{what}-{id(self):x}-{self._files}.pem"
        path.write_bytes(content)
        return path


def private_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    """A private key as PEM, encrypted if there is a password."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password),
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
