"""What a server is started with: plain values; nothing here reads or listens."""

from dataclasses import dataclass

from cog.errors import ServeError
from cog.reading import Count, Natural

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where a server listens, and what it admits."""

    host: str = "127.0.0.1"  # address to listen on
    port: int = 8000  # port to listen on; 0 for any free one
    api_key: str = ""  # key that every request must bring; empty for none
    is_open: bool = False  # whether an address that others reach may be served without a key
    # names that a request may call the server by, beside its addresses
    allowed_hosts: tuple[str, ...] = ()
    batch_size: Count = 16  # number of texts that share a pass
    max_waiting: Natural = 128  # number of texts that may wait for a place
    max_indexes: Count = 4  # number of indexes that stay open
    max_body_bytes: int = 1 << 20  # size of a request's body
    max_prefix_characters: int = 100_000  # length of one prefix
    max_texts: Count = 64  # number of texts that one request may ask for
    max_tokens: Count = 2048  # number of tokens of one text
    max_seconds: float = 600.0  # seconds after which a request is given up
    # seconds in which a body must have arrived, and an answer been read when the server ends
    body_seconds: float = 15.0
    has_prompts_in_log: bool = False  # whether the log holds what was asked and written

    def check(self) -> None:
        """Refuse to be reached by others without a key, unless that was asked for."""
        if self.host not in LOOPBACK and not self.api_key and not self.is_open:
            raise ServeError(
                f"a server that others reach ({self.host}) must have a key",
                found="none",
                run="pass --api-key-file FILE or --api-key KEY, or --no-auth to serve everybody",
                about="host",
            )
