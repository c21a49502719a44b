"""Several attnd on addresses of their own, and ways by which a client reaches them.

Each replica has an address of 127/8 and the same port, as pods behind a service do.
"""

import atexit
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "process"))
import attnd_process  # noqa: E402

PORT, ADMIN_PORT = 7411, 7412
PID = os.getpid()
# 127.x.y.*: this process' own, as two that run at once differ in it.
NETWORK = f"127.{64 + (PID >> 8) % 64}.{PID % 256}"


class Replica(attnd_process.Attnd):
    """An attnd with one compute thread, at NETWORK.number."""

    def __init__(self, attnd, number, *flags):
        host = f"{NETWORK}.{number}"
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(attnd, "--threads=1", f"--host={host}", f"--port={PORT}",
                         f"--admin_address={host}:{ADMIN_PORT}", "--memory_limit=1GiB", *flags,
                         log=pathlib.Path(self._folder.name) / "log")

    def calls(self, code=None):
        """Calls that it has answered: with this code, or any; streams of Exchanges are calls."""
        return int(sum(count for name, labels, count in attnd_process.samples(self.metrics())
                       if name == "attnd_requests_total" and code in (None, labels["code"])
                       and labels["method"] in ("Forward", "Exchange")))

    def not_found(self):
        return self.calls("NOT_FOUND")

    def stop(self):
        """Its exit status."""
        return self.end()


class Dns:
    """A name server that knows one name, `attnd.test`, whose addresses may change."""

    def __init__(self):
        self.addresses = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((f"{NETWORK}.253", 0))
        self.target = f"dns://{NETWORK}.253:{self.socket.getsockname()[1]}/attnd.test:{PORT}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            question, peer = self.socket.recvfrom(4096)
            end = question.index(b"\0", 12) + 5  # its name, type and class
            [kind] = struct.unpack(">H", question[end - 4:end - 2])
            known = question[12:end - 4].lower() == b"\x05attnd\x04test\0"
            found = self.addresses if known and kind == 1 else []
            # No such data, or the addresses, which nobody may keep (a TTL of 0).
            answers = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(a)
                               for a in found)
            header = question[:2] + struct.pack(">HHHHH", 0x8580, 1, len(found), 0, 0)
            self.socket.sendto(header + question[12:end] + answers, peer)


class Haproxy:
    """HAProxy in front of replicas, at NETWORK.254: by connection, or by call."""

    def __init__(self, replicas, by_call):
        self.target = f"ipv4:{NETWORK}.254:{PORT}"
        self.folder, self.log = tempfile.TemporaryDirectory(), tempfile.TemporaryFile()
        config = pathlib.Path(self.folder.name) / "haproxy.cfg"
        self.control = pathlib.Path(self.folder.name) / "control"
        self.backend = "attnd_servers" if by_call else "attnd"
        # A server that is not there yet is found within half a second.
        servers = "".join(f"  server r{i} {r if isinstance(r, str) else r.host}:{PORT} check inter 200 "
                          f"fall 1 rise 1{' proto h2' if by_call else ''}\n"
                          for i, r in enumerate(replicas))
        config.write_text(self._by_call(servers) if by_call else self._by_connection(servers))
        self.process = subprocess.Popen(
            [shutil.which("haproxy") or "/usr/sbin/haproxy", "-q", "-db", "-f", config],
            stdout=self.log, stderr=self.log)
        atexit.register(self.process.kill)
        self._await()

    def _by_connection(self, servers):
        return (f"global\n  stats socket {self.control} level admin\ndefaults\n  mode tcp\n  timeout connect 2s\n  timeout client 600s\n"
                f"  timeout server 600s\nlisten attnd\n  bind {NETWORK}.254:{PORT}\n"
                f"  balance roundrobin\n{servers}")

    def _by_call(self, servers):
        """deploy/haproxy.cfg, in clear and with several servers."""
        text = (ROOT / "deploy/haproxy.cfg").read_text()
        text, binds = re.subn(r"(?m)^  bind .*$", f"  bind {NETWORK}.254:{PORT} proto h2", text)
        text, found = re.subn(r"(?m)^  server attnd .*\n", f"  balance leastconn\n{servers}", text)
        if (binds, found) != (1, 1):
            raise RuntimeError("deploy/haproxy.cfg is not as it was")
        return text.replace("global\n", f"global\n  stats socket {self.control} level admin\n", 1)

    def take_away(self, index):
        """Gives the replica no new connections any more."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.control))
            control.sendall(f"set server {self.backend}/r{index} state drain\n".encode())
            if control.recv(100).strip():
                raise RuntimeError("HAProxy does not take a server away")

    def _await(self):
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection((f"{NETWORK}.254", PORT), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.log.seek(0)
                    raise RuntimeError(f"HAProxy does not start: {self.log.read()}") from None
                time.sleep(0.05)

    def stop(self):
        atexit.unregister(self.process.kill)
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()
