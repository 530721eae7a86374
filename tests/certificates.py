"""An authority and the certificates it gives, as PEM files: for brokers and clients of tests.

Keys are of an elliptic curve, so that a dozen are made in no time. What makes a certificate
bad (another name, an expired date, an authority that nobody knows) is asked for by name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
HERE = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Issued:
    """``both`` holds the key and the certificate, as a broker's PEM key store wants them."""

    certificate: Path
    key: Path
    both: Path


@dataclass
class Authority:
    """Its own certificate is ``ca``."""

    folder: Path
    name: str = "authority"
    _key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1()), repr=False
    )

    def __post_init__(self) -> None:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = (
            self._signed(self.name, self._key, 0)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = self.folder / f"{self.name}.pem"
        self.ca.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = HERE,
        *,
        days_ago: int = 0,
        password: str | None = None,
    ) -> Issued:
        """A certificate for ``hosts``; ``days_ago`` it was good for one day."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general(host) for host in hosts])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            self._signed(name, key, days_ago)
            .add_extension(names, critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        locked = serialization.BestAvailableEncryption(password.encode()) if password else None
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            locked or serialization.NoEncryption(),
        )
        public = made.public_bytes(serialization.Encoding.PEM)
        issued = Issued(*(self.folder / f"{name}{end}" for end in (".crt", ".key", ".pem")))
        issued.certificate.write_bytes(public)
        issued.key.write_bytes(private)
        issued.both.write_bytes(private + public)
        return issued

    def _signed(
        self, name: str, key: ec.EllipticCurvePrivateKey, days_ago: int
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - (days_ago + 1) * DAY)
            .not_valid_after(now - (days_ago - 1) * DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
