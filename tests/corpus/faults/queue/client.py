import socket


class Work:
    def __init__(self, host, port):
        self.connection = socket.create_connection((host, port), timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def next(self):
        self.connection.sendall(b"next\n")
        return int(self.connection.recv(64))  # HERE
