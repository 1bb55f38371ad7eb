"""Starts object stores on loopback: MinIO, moto and Azurite, each with its data in the caller's folder.

bench/setup-objects installs them into bench/.objects. Each store has a fixed port: a store that is started again must
listen on the same address.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from harness.peers import BENCH, MissingError
from harness.processes import StartError, is_listening

INSTALL_FOLDER = BENCH / ".objects"
PYTHON = INSTALL_FOLDER / "venv" / "bin" / "python"
START_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0

# The published key of the emulators, no secret.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class ObjectStore:
    """An object store that can be started, frozen, thawed, killed and started again."""

    def __init__(self, name, port, command, environment, scratch):
        """`environment` is for the store and its clients."""
        self.name = name
        self.port = port
        self.command = [str(part) for part in command]
        self.environment = environment
        self.log = Path(scratch) / f"{name}.log"
        self.process = None

    def start(self):
        if not Path(self.command[0]).exists():
            raise MissingError(f"{self.name} is not installed: run bench/setup-objects")
        if is_listening(self.port):
            raise StartError(f"{self.name}: 127.0.0.1:{self.port} is already in use; stop the process that listens")
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        limit = time.monotonic() + START_LIMIT_S
        while not is_listening(self.port):
            if self.process.poll() is not None or time.monotonic() > limit:
                output = self.log.read_text(errors="replace")[-2000:]
                raise StartError(f"{self.name}: not listening on 127.0.0.1:{self.port}. Its output:\n{output}")
            time.sleep(0.05)

    def send_signal(self, number):
        """Signals the process group, because the command may be a shell or a launcher."""
        os.killpg(self.process.pid, number)

    def freeze(self):
        self.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.send_signal(signal.SIGCONT)

    def kill(self):
        self.send_signal(signal.SIGKILL)
        self.process.wait(STOP_LIMIT_S)
        self.process = None

    def terminate(self):
        """Stops the store gracefully: it first saves the writes that are only in memory."""
        self.send_signal(signal.SIGTERM)
        self.process.wait(STOP_LIMIT_S)
        self.process = None

    def kill_if_alive(self):
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.kill()


def minio(scratch):
    """MinIO on one disk."""
    port = 21031
    data = Path(scratch) / "minio"
    command = [INSTALL_FOLDER / "bin" / "minio", "server", "--quiet", "--address", f"127.0.0.1:{port}", data]
    return ObjectStore("minio", port, command, s3_environment(port) | minio_environment(), scratch)


def moto(scratch):
    """moto, which keeps all data in memory: a test may freeze it, but not kill it."""
    port = 21032
    command = [INSTALL_FOLDER / "venv" / "bin" / "moto_server", "-H", "127.0.0.1", "-p", port]
    return ObjectStore("moto", port, command, s3_environment(port), scratch)


def azurite(scratch):
    """Azurite, Microsoft's emulator of Azure storage."""
    port = 21033
    program = INSTALL_FOLDER / "node_modules" / ".bin" / "azurite-blob"
    data = Path(scratch) / "azurite"
    options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", data, *options]
    environment = {
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURE_STORAGE_ACCOUNT_NAME": AZURITE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": AZURITE_KEY,
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
    }
    return ObjectStore("azurite", port, command, environment, scratch)


STORES = {"minio": minio, "moto": moto, "azurite": azurite}
BUCKET = "traces"


def tables_url(store, prefix):
    """The URL of the tables, for `curtail server`."""
    scheme = "az" if store.name == "azurite" else "s3"
    return f"{scheme}://{BUCKET}/{prefix}"


def s3_environment(port):
    return {
        "AWS_ACCESS_KEY_ID": "curtail-bench",
        "AWS_SECRET_ACCESS_KEY": "curtail-bench-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


def minio_environment():
    return {"MINIO_ROOT_USER": "curtail-bench", "MINIO_ROOT_PASSWORD": "curtail-bench-secret", "MINIO_BROWSER": "off"}
