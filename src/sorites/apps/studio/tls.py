"""Certificates of devices that sign their own: known by their fingerprint, the SHA-256 of the certificate."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import re
import ssl
import tempfile
from pathlib import Path

from sorites.core.errors import MissingExtra, SoritesError

PATIENCE_S = 10.0


def fingerprint_of(pem: str) -> str:
    """Return the SHA-256 of a certificate, in hex."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def pinned(host: str, port: int, fingerprint: str | None) -> tuple[ssl.SSLContext, str]:
    """Return a context that trusts the certificate that ``host`` shows now and no other, and its fingerprint.

    Where a fingerprint is given, another certificate is refused. Without one the first is taken,
    and the caller keeps it.
    """
    try:
        pem = ssl.get_server_certificate((host, port), timeout=PATIENCE_S)
    except OSError as error:
        raise SoritesError(f"no secure connection to {host}:{port}: {error}") from error
    found, wanted = fingerprint_of(pem), re.sub(r"[^0-9a-f]", "", (fingerprint or "").lower())
    if wanted and found != wanted:
        raise SoritesError(
            f"{host}:{port} shows another certificate than it had: expected {wanted[:16]}..., got"
            f" {found[:16]}.... If the device was reset, name the new one: --fingerprint {found}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    return context, found


def own_context(host: str) -> tuple[ssl.SSLContext, str]:
    """Return the context of a server that signs its own certificate, made now, and its fingerprint."""
    key, pem = _made(host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory(prefix="sorites-") as folder:
        both = Path(folder, "both.pem")
        with os.fdopen(os.open(both, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key + pem)
        context.load_cert_chain(both)
    return context, fingerprint_of(pem.decode())


def _made(host: str) -> tuple[bytes, bytes]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingExtra("a server with a certificate of its own", "studio") from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sorites studio")])
    now = datetime.datetime.now(datetime.UTC)
    named = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    made = made.not_valid_after(now + datetime.timedelta(days=3650)).add_extension(named, critical=False)
    signed = made.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, signed.public_bytes(serialization.Encoding.PEM)
