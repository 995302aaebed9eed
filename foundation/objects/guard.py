"""Closes the inner ports of the embedded SeaweedFS to other users of the machine.

Its parts talk to each other over TCP on the loopback address, which anybody on the machine can
reach. So its gRPC takes only peers that hold one certificate, its filer and volumes take only
requests that are signed with keys, and what would sign them for anybody is switched off. Keys and
certificate are made at each start, and known to the server alone.
"""

import secrets
from datetime import UTC, datetime
from pathlib import Path

from foundation.durable import write_private_file

OPTIONS = ("-disableHttp",)
"""Without HTTP at its master, which hands out signatures, and at its filer."""

_SIGNED = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
_GRPC = ("MASTER", "VOLUME", "FILER", "S3", "ADMIN", "WORKER", "CLIENT")
_SINCE, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def closed(folder: Path) -> dict[str, str]:
    """The environment of a server that lets nobody in; its certificate is written to `folder`."""
    certificate, key = folder / "grpc.pem", folder / "grpc-key.pem"
    for path, content in zip((certificate, key), _certificate(), strict=True):
        write_private_file(path, content)
    made = {f"WEED_JWT_{name}_KEY": secrets.token_hex(32) for name in _SIGNED}
    made["WEED_GRPC_CA"] = str(certificate)
    for part in _GRPC:
        made[f"WEED_GRPC_{part}_CERT"] = str(certificate)
        made[f"WEED_GRPC_{part}_KEY"] = str(key)
    return made


def _certificate() -> tuple[bytes, bytes]:
    """A certificate that vouches for itself, for both ends of a connection, and its key; PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "counterfoil objects")])
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_SINCE)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return made.public_bytes(pem), private
