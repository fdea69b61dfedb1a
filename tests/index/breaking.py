"""A door to a server that breaks connections."""

import socket
import threading
from contextlib import suppress


class Breaking:
    """A door to the server that breaks connections after some bytes; the first few, or all."""

    def __init__(self, endpoint: str, *, num_broken: int, after_bytes: int) -> None:
        self._target = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
        self._num_broken, self._after_bytes = num_broken, after_bytes
        self.num_connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            is_broken = self.num_connections <= self._num_broken
            server = socket.create_connection(self._target)
            limit = self._after_bytes if is_broken else 1 << 60
            for pair in ((client, server, 1 << 60), (server, client, limit)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket, limit: int) -> None:
        with suppress(OSError):
            while limit > 0 and (data := source.recv(min(limit, 65536))):
                target.sendall(data)
                limit -= len(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
