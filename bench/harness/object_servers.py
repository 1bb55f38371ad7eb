"""Object stores on loopback: MinIO, moto and Azurite, each with its data in a folder that the caller gives.

They are installed by bench/setup-objects into bench/.objects. Each listens on a port of its own, always the same, since
one that is stopped and started again must come back where it was.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from harness.peers import BENCH, MissingError
from harness.processes import StartError, is_listening

INSTALLED = BENCH / ".objects"
PYTHON = INSTALLED / "venv" / "bin" / "python"
START_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0

# What both emulators document; nobody else is let in by it.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Store:
    """An object store that can be started, frozen, thawed, killed and started again."""

    def __init__(self, name, port, command, settings, scratch):
        """`settings`: the environment with which both the store and its clients are run."""
        self.name = name
        self.port = port
        self.command = [str(part) for part in command]
        self.settings = settings
        self.log = Path(scratch) / f"{name}.log"
        self.process = None

    def start(self):
        if not Path(self.command[0]).exists():
            raise MissingError(f"{self.name} is not installed: run bench/setup-objects")
        if is_listening(self.port):
            raise StartError(f"{self.name}: something already listens on 127.0.0.1:{self.port}; stop it first")
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | self.settings,
                start_new_session=True,
            )
        limit = time.monotonic() + START_LIMIT_S
        while not is_listening(self.port):
            if self.process.poll() is not None or time.monotonic() > limit:
                last = self.log.read_text(errors="replace")[-2000:]
                raise StartError(f"{self.name}: not listening on 127.0.0.1:{self.port}. It printed:\n{last}")
            time.sleep(0.05)

    def signal(self, number):
        """To the whole group: some are a shell or a launcher with the store below."""
        os.killpg(self.process.pid, number)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait(STOP_LIMIT_S)
        self.process = None

    def end(self):
        """Has it end by itself: a store that keeps writes in memory for a while would lose them otherwise."""
        self.signal(signal.SIGTERM)
        self.process.wait(STOP_LIMIT_S)
        self.process = None

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.kill()


def minio(scratch):
    """MinIO on one disk."""
    port = 21031
    data = Path(scratch) / "minio"
    command = [INSTALLED / "bin" / "minio", "server", "--quiet", "--address", f"127.0.0.1:{port}", data]
    return Store("minio", port, command, of_s3(port) | of_minio(), scratch)


def moto(scratch):
    """moto, which keeps everything in memory: it may be frozen, not killed."""
    port = 21032
    command = [INSTALLED / "venv" / "bin" / "moto_server", "-H", "127.0.0.1", "-p", port]
    return Store("moto", port, command, of_s3(port), scratch)


def azurite(scratch):
    """Azurite, Azure's own emulator."""
    port = 21033
    program = INSTALLED / "node_modules" / ".bin" / "azurite-blob"
    data = Path(scratch) / "azurite"
    quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", data, *quiet]
    settings = {
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURE_STORAGE_ACCOUNT_NAME": AZURITE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": AZURITE_KEY,
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
    }
    return Store("azurite", port, command, settings, scratch)


KNOWN = {"minio": minio, "moto": moto, "azurite": azurite}
BUCKET = "traces"


def url(store, prefix):
    """The URL of the tables, for `curtail server`."""
    scheme = "az" if store.name == "azurite" else "s3"
    return f"{scheme}://{BUCKET}/{prefix}"


def of_s3(port):
    return {
        "AWS_ACCESS_KEY_ID": "curtail-bench",
        "AWS_SECRET_ACCESS_KEY": "curtail-bench-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


def of_minio():
    return {"MINIO_ROOT_USER": "curtail-bench", "MINIO_ROOT_PASSWORD": "curtail-bench-secret", "MINIO_BROWSER": "off"}
