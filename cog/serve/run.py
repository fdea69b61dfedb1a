"""The process: settings go in, a server listens until it is told to end.

SIGTERM, or the first Ctrl-C: nothing new is taken, what runs is finished, then the process ends. A
second signal ends it at once.
"""

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from cog.errors import ServeError
from cog.params import Params
from cog.paths import ProjectPaths
from cog.serve.app import make_app
from cog.serve.engine import Engine
from cog.serve.settings import ServeSettings

KEEP_ALIVE_SECONDS = 5
BACKLOG = 2048
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(
    paths: ProjectPaths,
    params: Params,
    *,
    settings: ServeSettings,
    device: str,
    say: Callable[[str], None],
) -> None:
    """Serve a project until the process is told to end."""
    settings.check()
    with bind(settings) as listener:  # before anything slow is loaded
        engine = Engine(paths, params, settings=settings, device=device)
        warming = threading.Thread(target=engine.warm, name="warm")
        warming.start()  # requests need not wait for it unless they are for what it opens
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(f"serving {paths.root.name} at http://{shown}:{port}/ (Ctrl-C ends)")
        config = uvicorn.Config(
            make_app(engine, settings),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            backlog=BACKLOG,
            lifespan="on",
            ws="none",
        )
        asyncio.run(_Server(config, engine).serve(sockets=[listener]))
        warming.join()
        say("ended")


def bind(settings: ServeSettings) -> socket.socket:
    """Take the address that is listened on; who connects waits until the server is ready."""
    listener: socket.socket | None = None
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # so that nobody else can
    except (OSError, OverflowError) as error:
        if listener is not None:
            listener.close()
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise ServeError(
            f"port {settings.port} of {settings.host} must be free",
            found="another process listens there" if is_taken else str(error),
            run="pass another --port, or --port 0 for any that is free",
            about="port",
        ) from None
    return listener


class _Server(uvicorn.Server):
    # tells the engine when it is about to end, and ends without a signal of its own
    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self._engine = engine

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {each: signal.signal(each, self._end) for each in SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._engine.is_stopping = True
        self.force_exit = self.should_exit
        self.should_exit = True
