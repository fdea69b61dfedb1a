"""Room on the device: texts go in, and are read in as large parts as there is memory for."""

import logging

import torch
from torch import Tensor

from cog.errors import CheckpointError
from cog.model.protocols import TextNetwork

_logger = logging.getLogger(__name__)


class HalvingNetwork:
    """A bidirectional encoder that reads half as many texts at once where memory runs out."""

    def __init__(self, network: TextNetwork) -> None:
        self._network = network
        self._most: int | None = None  # texts read at once; None for any number
        self.dim = network.dim
        self.device = network.device
        self.max_positions = network.max_positions

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Read texts as the encoder; without room for a single one it is a ``CheckpointError``."""
        parts: list[Tensor] = []
        first = 0
        while first < len(ids):
            end = min(len(ids), first + (self._most or len(ids)))
            try:
                parts.append(self._network(ids[first:end], mask[first:end]))
            except torch.OutOfMemoryError:
                pass  # handled when the pass and what it held are gone
            else:
                first = end
                continue
            self._halve(end - first)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _halve(self, size: int) -> None:
        if size == 1:
            raise CheckpointError(
                "the device must have room for one text",
                found="out of memory",
                run="use --device cpu, or end what else runs on the device",
            )
        if self._most is None:
            _logger.warning("the device is out of memory: half as many texts at a time from now on")
        self._most = size // 2
