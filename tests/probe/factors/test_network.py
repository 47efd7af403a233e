"""`factors.network`: what comes from outside is noted, a training's own talk is not."""

from __future__ import annotations

import ast
import itertools
import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Used
from tests.probe.factors.runs import once, watched_twice

pytestmark = pytest.mark.slow


class Answers(socketserver.StreamRequestHandler):
    """Answers each line, and each request over HTTP, with the next number of its server."""

    def handle(self) -> None:
        for line in self.rfile:
            answer = b"%d\n" % next(self.server.numbers)  # type: ignore[attr-defined]
            if line.startswith(b"GET"):
                while self.rfile.readline().strip():
                    pass
                answer += b" " * 20_000
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
            self.wfile.write(answer)


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[dict[str, int]]:
    """Servers beside the training, whose answers change: HTTP, HTTPS where a certificate can be
    made, and lines."""
    names = ["http", "lines", *(["https"] if shutil.which("openssl") else [])]
    numbers = {
        "lines": itertools.count(1007),
        **dict.fromkeys(("http", "https"), itertools.count(5)),
    }
    servers = {name: socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers) for name in names}
    if "https" in servers:
        made = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2"
        made += " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
        subprocess.run(made.split(), cwd=tmp_path, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
        servers["https"].socket = context.wrap_socket(servers["https"].socket, server_side=True)
    for name, server in servers.items():
        server.numbers = numbers[name]  # type: ignore[attr-defined]
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {name: server.server_address[1] for name, server in servers.items()}
    for server in servers.values():
        server.shutdown()
        server.server_close()


def noted(done: RunResult) -> list[Used]:
    found = [use for trace in done.traces for use in trace.uses if use.factor == "network"]
    assert all(use.outside for use in found)
    return found


ASKING = """
import asyncio, socket, ssl, urllib.request
def fetch(url, **options):
    with urllib.request.urlopen(url, timeout=10, **options) as answer:
        return int(answer.read())
found = [fetch("http://127.0.0.1:{http}/") for _ in range(4)]
with socket.create_connection(("127.0.0.1", {lines}), timeout=10) as line:
    for _ in range(5):
        line.sendall(b"next\\n")
        found.append(int(line.recv(64)))
async def ask():
    reader, writer = await asyncio.open_connection("127.0.0.1", {lines})
    for _ in range(3):
        writer.write(b"next\\n")
        found.append(int(await reader.readline()))
    writer.close()
asyncio.run(ask())
if {https}:
    found.append(fetch("https://127.0.0.1:{https}/", context=ssl.create_default_context(cafile={cert!r})))
print(found)
"""


def test_what_comes_in_is_noted_in_every_way(tmp_path: Path, ports: dict[str, int]) -> None:
    source = ASKING.format(**{"https": 0, **ports}, cert=str(tmp_path / "cert.pem"))
    runs = watched_twice(tmp_path, source)
    printed = [ast.literal_eval(done.ended.tail[-1]) for done in runs]
    assert len({*printed[0], *printed[1]}) == 2 * len(printed[0]), "every answer is another one"
    seen = [{(use.line, use.source): use.digest for use in noted(done)} for done in runs]
    assert seen[0].keys() == seen[1].keys()
    assert len({source for _, source in seen[0]}) == len(ports)
    # fetch, the socket, the loop's
    assert {5, 10, 17} <= {key[0] for key in seen[0] if seen[0][key] != seen[1][key]}


def test_connections_between_processes_of_the_training_are_left_alone(tmp_path: Path) -> None:
    source = """
    import os, socket, threading, uuid
    from multiprocessing.connection import Client, Listener
    server = socket.create_server(("127.0.0.1", 0))
    def serve():
        while True:
            inside, _ = server.accept()
            inside.sendall(uuid.uuid4().bytes)
            inside.close()
    threading.Thread(target=serve, daemon=True).start()
    def ask():
        with socket.create_connection(server.getsockname()[:2]) as line:
            return line.recv(16, socket.MSG_WAITALL).hex()
    child_reads, child_writes = os.pipe()
    if not os.fork():
        os.write(child_writes, ask().encode())
        os._exit(0)
    os.wait()
    listener = Listener(("127.0.0.1", 0))
    threading.Thread(target=lambda: listener.accept().send("hello"), daemon=True).start()
    print([ask(), os.read(child_reads, 99).decode(), Client(listener.address).recv()])
    """
    assert noted(once(tmp_path, source, {"watch": True})) == []


def test_what_is_received_is_as_ever(tmp_path: Path, ports: dict[str, int]) -> None:
    source = f"""
    import socket
    with socket.create_connection(("127.0.0.1", {ports["http"]})) as line:
        line.setblocking(False)
        try:
            line.recv(1)
        except BlockingIOError:
            line.setblocking(True)
        buffer = bytearray(4)
        line.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        print([line.recv(4, socket.MSG_PEEK), line.recv_into(buffer), bytes(buffer), line.recv(5)])
    """
    found = ast.literal_eval(once(tmp_path, source, {"watch": True}).ended.tail[-1])
    assert found == [b"HTTP", 4, b"HTTP", b"/1.1 "]
