"""A service on this machine whose answers change: `python settings.py PORT`. Each answer has
another `decay`."""

import http.server
import itertools
import json
import sys

number = itertools.count(1)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers every question with the next settings."""

    def do_GET(self):
        body = json.dumps({"decay": 1e-4 * next(number)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


with http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    print("ready", flush=True)
    server.serve_forever()
