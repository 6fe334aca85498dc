"""A real PostgreSQL server in a folder of its own, on a free port of this machine."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

# Debian keeps the server's programs off the path, in a folder for each version.
FOUND = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
POSTGRES = FOUND[-1] if FOUND else "/usr/lib/postgresql/15/bin/postgres"
# It refuses to run as root.
AS_USER = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PostgresServer:
    """Started by :meth:`start`, which waits until it answers."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: a socket's path has 107 bytes
        if AS_USER:
            shutil.chown(self.folder, "postgres", "postgres")
        self.data = self.folder / "data"
        self.port = free_port()
        self.process = None
        self._databases = 0
        initdb = Path(POSTGRES).with_name("initdb")
        self._run(initdb, "-D", self.data, "-U", "satwatch", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def _run(self, *command):
        subprocess.run(list(map(str, command)), check=True, capture_output=True, cwd=self.folder, **AS_USER)

    def start(self):
        options = ["-D", str(self.data), "-k", str(self.folder), "-h", "127.0.0.1", "-p", str(self.port)]
        options += ["-c", "fsync=off"]  # the machine doesn't crash in a test, and a shutdown takes seconds less
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [POSTGRES, *options], cwd=self.folder, stdout=log, stderr=log, start_new_session=True, **AS_USER
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < deadline and self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)

    def _answers(self):
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database):
        return f"postgresql://satwatch:s3cret@127.0.0.1:{self.port}/{database}"

    def new_database(self):
        self._databases += 1
        name = f"history{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def stop(self, how=signal.SIGINT):
        """Shut it down as a restart does: connections are cut, what was committed stays."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def remove(self):
        self.stop(signal.SIGQUIT)  # nothing has to be on the disk any more
        shutil.rmtree(self.folder, ignore_errors=True)
