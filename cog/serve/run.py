"""The process: settings go in, a server listens until it is told to end.

SIGTERM, or the first Ctrl-C: nothing new is taken, what runs is finished, then the process ends. A
second signal ends it at once.
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from uvicorn.lifespan.on import LifespanOn

from cog.errors import ServeError
from cog.params import Params
from cog.paths import ProjectPaths
from cog.serve.app import make_app
from cog.serve.engine import Engine
from cog.serve.settings import ServeSettings

KEEP_ALIVE_SECONDS = 5
BACKLOG = 2048
POLL_SECONDS = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)
logger = logging.getLogger("cog.serve")


def serve(
    paths: ProjectPaths,
    params: Params,
    *,
    settings: ServeSettings,
    device: str,
    say: Callable[[str], None],
) -> None:
    """Serve a project until the process is told to end, or what writes is broken.

    Then it is a ``ServeError``, so that whoever looks after the process starts it again.
    """
    settings.check()
    with bind(settings) as listener:  # before anything slow is loaded
        engine = Engine(paths, params, settings=settings, device=device)
        warming = threading.Thread(target=engine.warm, name="warm")
        warming.start()  # requests need not wait for it unless they are for what it opens
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(f"serving {paths.root.name} at http://{shown}:{port}/ (Ctrl-C ends)")
        server = Server(engine, settings)
        server.run_on(listener)
        if server.left:  # a thread that waits for ever would keep the process
            say("ended" if engine.failure is None else str(engine.failure))
            sys.stderr.flush()
            os._exit(engine.failure is not None)
        if engine.failure is not None:
            raise engine.failure
        say("ended")
        warming.join()


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
    except OSError as error:
        if listener is not None:
            listener.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ServeError(
                "--host must be an address or a name of this machine",
                found=f"{settings.host}: {error.strerror}",
                run="pass --host 127.0.0.1, or 0.0.0.0 for every address of this machine",
                about="host",
            ) from None
        is_taken = error.errno == errno.EADDRINUSE
        raise ServeError(
            f"port {settings.port} of {settings.host} must be free",
            found="another process listens there" if is_taken else str(error),
            run="pass another --port, or --port 0 for any that is free",
            about="port",
        ) from None
    return listener


class Server(uvicorn.Server):
    """Tells the engine when it is about to end, and ends without a signal of its own."""

    def __init__(self, engine: Engine, settings: ServeSettings) -> None:
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
        super().__init__(config)
        self._engine = engine
        self._answer_seconds = settings.body_seconds
        self.left: set[str] = set()  # what was left in a thread, when it ended

    def run_on(self, listener: socket.socket) -> None:
        """Listen until it is told to end.

        Unlike ``asyncio.run`` it waits for no request that cannot be cancelled, since what that
        waits for in a thread may be a lock of another process.
        """
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self.serve(sockets=[listener]))
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=POLL_SECONDS))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to signals while the block runs; nothing is done in a thread, which gets none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._end) for each in SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, asked ten times a second."""
        if self._engine.failure is not None:  # only ever set: a signal may set it meanwhile
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what runs; who or what takes longer is cut off, or left."""
        limiting = asyncio.create_task(self._limit_end())
        await super().shutdown(sockets)
        limiting.cancel()

    async def _limit_end(self) -> None:
        # uvicorn waits for every connection, and one that nobody reads from stays for ever; then
        # for every request. What ends in a thread is heard of ten times a second, even where the
        # loop was not woken for it
        since = time.monotonic()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            seconds = time.monotonic() - since
            if self._engine.num_running or self._engine.num_waiting:
                since = time.monotonic()
            elif seconds > 3 * self._answer_seconds:
                assert isinstance(self.lifespan, LifespanOn)
                self._leave("the engine")
                self.lifespan.shutdown_event.set()  # as if it had stopped
            elif seconds > 2 * self._answer_seconds and self.server_state.tasks:
                self._leave("a request")
                self.server_state.tasks.clear()
            elif seconds > self._answer_seconds:
                for connection in list(self.server_state.connections):
                    name = connection.transport.get_extra_info("peername")
                    logger.warning("%s was cut off: it does not read its answer", name)
                    connection.transport.abort()

    def _leave(self, name: str) -> None:
        if name not in self.left:
            logger.warning("%s does not end, and is left; threads are at\n%s", name, _find_places())
        self.left.add(name)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._engine.is_stopping = True
        self.force_exit = self.should_exit
        self.should_exit = True


def _find_places() -> str:
    # where other threads stand
    ours = threading.get_ident()
    names = {each.ident: each.name for each in threading.enumerate() if each.ident != ours}
    return "".join(
        "".join([f"{names[ident]}:\n", *traceback.format_stack(frame)[-3:]])
        for ident, frame in sys._current_frames().items()
        if ident in names
    )
