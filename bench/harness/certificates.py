"""Certificates for servers on loopback, made by openssl."""

import os
import subprocess

from harness import peers

REQUEST = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def write_self_signed(folder):
    """Writes `certificate.pem` and `key.pem` for localhost, signed by itself; replaces earlier ones whole."""
    command = [peers.find_program("openssl", "openssl"), *REQUEST.split(), "-addext", NAMES]
    command += ["-keyout", "new.key", "-out", "new.pem"]
    made = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode != 0:
        raise peers.MissingError(f"openssl made no certificate:\n{made.stdout}")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    os.replace(folder / "new.key", key)
    os.replace(folder / "new.pem", certificate)
    return certificate, key
