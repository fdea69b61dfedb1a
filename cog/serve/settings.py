"""What a server is started with: plain values; nothing here reads or listens."""

from dataclasses import dataclass

from cog.errors import ServeError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where a server listens, and what it admits.

    :param host: Address to listen on.
    :param port: Port to listen on; 0 for any free one.
    :param api_key: Key that every request must bring; empty for none.
    :param is_open: Whether an address that others reach may be served without a key.
    :param allowed_hosts: Names that a request may call the server by, beside its addresses.
    :param batch_size: Number of texts that share a pass.
    :param max_waiting: Number of texts that may wait for a place.
    :param max_indexes: Number of indexes that stay open.
    :param max_body_bytes: Size of a request's body.
    :param max_prefix_characters: Length of one prefix.
    :param max_texts: Number of texts that one request may ask for.
    :param max_tokens: Number of tokens of one text.
    :param max_seconds: Seconds after which a request is given up.
    :param body_seconds: Seconds in which a body must have arrived.
    :param has_prompts_in_log: Whether the log holds what was asked and written.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str = ""
    is_open: bool = False
    allowed_hosts: tuple[str, ...] = ()
    batch_size: int = 16
    max_waiting: int = 128
    max_indexes: int = 4
    max_body_bytes: int = 1 << 20
    max_prefix_characters: int = 100_000
    max_texts: int = 64
    max_tokens: int = 2048
    max_seconds: float = 600.0
    body_seconds: float = 15.0
    has_prompts_in_log: bool = False

    def check(self) -> None:
        """Refuse to be reached by others without a key, unless that was asked for.

        :raises ServeError: If there is neither.
        """
        if self.host not in LOOPBACK and not self.api_key and not self.is_open:
            raise ServeError(
                f"a server that others reach ({self.host}) must have a key",
                found="none",
                run="pass --api-key KEY, or --no-auth to serve everybody",
                about="host",
            )
