"""A text that is being written: what writes it goes in, segments come out as they are final."""

import queue
import threading
from collections.abc import Callable, Iterator

from cog.api.text import Text
from cog.errors import GenerationError
from cog.records import Segment

Write = Callable[[Callable[[Segment], None]], Text]


class StreamStoppedError(GenerationError):
    """The text was not written to its end."""


class Stream(Iterator[Segment]):
    """Segments of a text that is written in the background."""

    def __init__(self, write: Write) -> None:
        self._writing = _Writing(write)
        self._thread = threading.Thread(target=self._writing.run, name="cog-stream", daemon=True)
        self._thread.start()

    def __next__(self) -> Segment:
        segment = self._writing.segments.get()
        if segment is not None:
            return segment
        self._writing.segments.put(None)  # who asks again finds the end again
        if self._writing.error is not None:
            raise self._writing.error
        raise StopIteration

    def __del__(self) -> None:
        self._writing.is_stopped = True  # nobody reads any more

    @property
    def text(self) -> Text:
        """The whole text; waits until it is written."""
        self._thread.join()
        if self._writing.error is not None:
            raise self._writing.error
        assert self._writing.text is not None
        return self._writing.text

    def close(self) -> None:
        """Write no further; returns once nothing is written any more."""
        self._writing.is_stopped = True
        self._thread.join()


class _Writing:
    # what the thread knows; it does not know the stream, which may go away before its end

    def __init__(self, write: Write) -> None:
        self._write = write
        self.segments: queue.SimpleQueue[Segment | None] = queue.SimpleQueue()
        self.is_stopped = False
        self.text: Text | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.text = self._write(self._pass_on)
        except Exception as error:  # is raised where the stream is read
            self.error = error
        finally:
            self.segments.put(None)

    def _pass_on(self, segment: Segment) -> None:
        if self.is_stopped:
            raise StreamStoppedError("a text must be written to its end", found="a closed stream")
        self.segments.put(segment)
