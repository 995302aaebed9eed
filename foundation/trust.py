"""Whom TLS trusts, whoever asks."""

import os
import re
import ssl

import certifi

_HASHED = re.compile(r"[0-9a-f]{8}\.\d")


def verifying() -> ssl.SSLContext:
    """TLS that trusts whom the machine trusts, or certifi's list where it has none.

    The paths are those that OpenSSL was built with: the environment could name others.
    """
    paths = ssl.get_default_verify_paths()
    cafile = paths.openssl_cafile if os.path.isfile(paths.openssl_cafile) else None
    capath = paths.openssl_capath if _has_certificates(paths.openssl_capath) else None
    if not cafile and not capath:
        cafile = certifi.where()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile, capath)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _has_certificates(folder: str) -> bool:
    return os.path.isdir(folder) and any(map(_HASHED.fullmatch, os.listdir(folder)))
