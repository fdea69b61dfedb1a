"""What every system is: requests go in, generations with their seconds come out."""

from collections.abc import Sequence
from typing import Protocol

from cog.decoding.request import Request
from cog.records import Generation


class TextGenerator(Protocol):
    """Anything that continues texts: the copy-generator and every baseline.

    An evaluation knows nothing else of a system.
    """

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Write a batch of texts together.

        :param requests: Prefixes, each with its decoding and seed.
        :returns: The texts, in the order asked; their seconds are split into ``retrieve``,
            ``gather`` and ``decode``, those of the batch divided by the number of texts.
        """
