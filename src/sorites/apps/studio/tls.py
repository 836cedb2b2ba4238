"""TLS for devices with self-signed certificates, which are identified by the SHA-256 fingerprint."""

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
from sorites.core.messages import option

TIMEOUT_S = 10.0


def fingerprint_of(pem: str) -> str:
    """Return the SHA-256 of a certificate in hex."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def pinned(host: str, port: int, fingerprint: str | None) -> tuple[ssl.SSLContext, str]:
    """Return a context that trusts only the certificate that ``host`` presents now, and its fingerprint.

    Args:
        host: Host of the device.
        port: Port of the device.
        fingerprint: Expected fingerprint. Without one the first certificate is trusted, and the caller stores
            it.

    Raises:
        SoritesError: The certificate has another fingerprint, or there is no connection.
    """
    try:
        pem = ssl.get_server_certificate((host, port), timeout=TIMEOUT_S)
    except OSError as error:
        raise SoritesError(f"no secure connection to {host}:{port}: {error}") from error
    actual, expected = fingerprint_of(pem), re.sub(r"[^0-9a-f]", "", (fingerprint or "").lower())
    if expected and actual != expected:
        raise SoritesError(
            f"{host}:{port} presents another certificate than before: expected {expected[:16]}..., got"
            f" {actual[:16]}.... If the device was reset, pass {option('fingerprint', actual)}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    return context, actual


def own_context(host: str) -> tuple[ssl.SSLContext, str]:
    """Return the context of a server with a new self-signed certificate, and its fingerprint."""
    key, pem = _make_certificate(host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory(prefix="sorites-") as folder:
        both = Path(folder, "both.pem")
        with os.fdopen(os.open(both, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key + pem)
        context.load_cert_chain(both)
    return context, fingerprint_of(pem.decode())


def _make_certificate(host: str) -> tuple[bytes, bytes]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingExtra("a server with a self-signed certificate", "studio") from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sorites studio")])
    now = datetime.datetime.now(datetime.UTC)
    named = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
        now - datetime.timedelta(days=1)
    )
    builder = builder.not_valid_after(now + datetime.timedelta(days=3650)).add_extension(
        named, critical=False
    )
    signed = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, signed.public_bytes(serialization.Encoding.PEM)
