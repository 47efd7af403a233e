"""A server that hands out positions, 16 further each time: `python work.py PORT`."""

import itertools
import socketserver
import sys

positions = itertools.count(0, 16)


class Handler(socketserver.StreamRequestHandler):
    """Answers each line with the next position."""

    def handle(self):
        for _ in self.rfile:
            self.wfile.write(b"%d\n" % next(positions))


socketserver.ThreadingTCPServer.allow_reuse_address = True
with socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    server.daemon_threads = True
    print("ready", flush=True)
    server.serve_forever()
