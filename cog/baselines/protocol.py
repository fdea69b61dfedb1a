"""What every system is: requests go in, generations with their seconds come out."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from cog.decoding.batches import iter_batches
from cog.decoding.generator import CopyGenerator
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


def write_each(
    generator: TextGenerator, requests: Sequence[Request], *, batch_size: int
) -> Iterator[Generation]:
    """Write texts and give each as soon as it and those before it are there.

    :param generator: What writes them: texts of the copy-generator come and go, those of a
        baseline are written batch by batch.
    :param requests: Prefixes, each with its decoding and seed.
    :param batch_size: Number of texts that are written together.
    :yields: The texts, in the order asked.
    """
    if isinstance(generator, CopyGenerator):
        yield from generator.generate_each(requests, batch_size=batch_size)
        return
    for batch in iter_batches(requests, batch_size):
        yield from generator.generate(batch)
