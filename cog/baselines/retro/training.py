"""Fitting the adapter ("RETRO-fitting"): a model and an index go in, a trained adapter comes out.

The prefix encoder stays as it is; learnt are the encoder of neighbours, the cross-attention and
its gates, by the cross-entropy of the next token (Borgeaud et al. 2022, section 2.5 and 4.5).
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cog.baselines.retro.adapter import Memory, RetroAdapter, RetroConfig
from cog.baselines.retro.batches import IGNORED, RetroBatch
from cog.errors import TrainingError
from cog.model.load import CogModel
from cog.progress import Progress
from cog.training.peak import get_peak
from cog.training.reporting import Meter
from cog.training.schedule import Budget, rate_factor
from cog.training.stopping import StopRequest

WARMUP, FINAL = 0.05, 0.1  # share of the run in which the rate rises; its factor at the end
MAX_GRADIENT_NORM = 1.0
COMPARED_STEPS = 10  # steps whose mean loss is stated, of the beginning and of the end


@dataclass(frozen=True, slots=True)
class RetroSettings:
    """How an adapter is made and fitted.

    :param chunk_tokens: Number of tokens after which neighbours are retrieved anew.
    :param num_neighbours: Number of neighbours of a chunk.
    :param neighbour_tokens: Number of tokens of a neighbour, at most.
    :param continuation_tokens: Number of tokens of what follows it, at most.
    :param num_cross_layers: Number of layers of the prefix encoder that see neighbours.
    :param encoder_layers: Number of layers of the encoder of neighbours.
    :param window_tokens: Number of tokens of a training window.
    :param batch_windows: Number of windows of a step.
    :param learning_rate: Largest learning rate.
    """

    chunk_tokens: int
    num_neighbours: int
    neighbour_tokens: int
    continuation_tokens: int
    num_cross_layers: int
    encoder_layers: int
    window_tokens: int
    batch_windows: int
    learning_rate: float


@dataclass(frozen=True, slots=True)
class RetroOutcome:
    """How a run ended.

    :param steps: Number of steps.
    :param seconds: Their seconds.
    :param num_tokens: Number of tokens learnt from.
    :param reason: Why it ended: ``budget`` or the name of a signal.
    :param first_loss: Mean loss of the first steps.
    :param last_loss: Mean loss of the last steps.
    :param gates: How far each gate is open, from the first layer on.
    """

    steps: int
    seconds: float
    num_tokens: int
    reason: str
    first_loss: float
    last_loss: float
    gates: tuple[float, ...]


def make_adapter(model: CogModel, settings: RetroSettings, *, seed: int) -> RetroAdapter:
    """Make an adapter that fits a model and changes nothing yet.

    :param model: The model.
    :param settings: The sizes.
    :param seed: Seed of its weights.
    :returns: The adapter, on the CPU.
    """
    base = model.prefix_encoder.model.config
    num_layers = int(base.num_hidden_layers)
    step = max(1, num_layers // (settings.num_cross_layers + 1))
    first = num_layers - step * min(settings.num_cross_layers, num_layers)
    config = RetroConfig(
        dim=int(base.hidden_size),
        num_heads=int(base.num_attention_heads),
        chunk_tokens=settings.chunk_tokens,
        num_neighbours=settings.num_neighbours,
        neighbour_tokens=settings.neighbour_tokens,
        continuation_tokens=settings.continuation_tokens,
        cross_layers=tuple(range(first, num_layers, step)),
        encoder_layers=settings.encoder_layers,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return RetroAdapter(config)


class RetroTrainer:
    """A model whose adapter is being fitted; the model is changed and must not write texts.

    :param model: The model, loaded for this alone.
    :param adapter: The adapter.
    """

    def __init__(self, model: CogModel, adapter: RetroAdapter) -> None:
        self.adapter = adapter.to(model.prefix_encoder.device)
        self._network = model.prefix_encoder.model
        self.num_body_weights = sum(p.numel() for p in self._network.base_model.parameters())
        self._network.set_attn_implementation("sdpa")  # that of the cache knows no gradients
        body = self._network.base_model
        layers = getattr(body, "layers", None) or body.h
        assert isinstance(layers, nn.ModuleList)
        adapter.attach(list(layers))

    @property
    def device(self) -> torch.device:
        """Where the model lies.

        :returns: The device.
        """
        return self._network.device

    def compute_states(self, batch: RetroBatch) -> Tensor:
        """Run the prefix encoder with neighbours.

        :param batch: The windows.
        :returns: Hidden states. *Shape:* ``(batch, prefix_len, dim)``
        """
        self.adapter.set_memory(self._read_memory(batch))
        try:
            output = self._network.base_model(
                input_ids=batch.inputs.to(self.device), use_cache=False
            )
        finally:
            self.adapter.set_memory(None)
        states: Tensor = output.last_hidden_state
        return states

    def compute_loss(self, batch: RetroBatch) -> Tensor:
        """Mean cross-entropy of the next token.

        :param batch: The windows.
        :returns: A scalar, in nats.
        """
        counted = batch.targets != IGNORED
        states = self.compute_states(batch)[counted.to(self.device)]  # (num_tokens, dim)
        logits = self._network.get_output_embeddings()(states)  # type: ignore[no-untyped-call]
        return nn.functional.cross_entropy(logits.float(), batch.targets[counted].to(self.device))

    def _read_memory(self, batch: RetroBatch) -> Memory | None:
        if batch.neighbours is None:
            return None
        found = batch.neighbours
        embed = self._network.get_input_embeddings()
        embeddings = embed(found.token_ids.to(self.device)).float()
        states, mask = self.adapter.encode(embeddings, found.mask.to(self.device))
        return Memory(states, mask, batch.token_memories.to(self.device))


def fit_adapter(
    trainer: RetroTrainer,
    batches: Iterable[RetroBatch],
    *,
    learning_rate: float,
    budget: Budget,
    stop: StopRequest,
    progress: Progress,
) -> RetroOutcome:
    """Fit an adapter until the budget is used, or the run is asked to stop.

    :param trainer: The model and the adapter.
    :param batches: Batches without end.
    :param learning_rate: Largest learning rate.
    :param budget: When it ends.
    :param stop: Asked after every step.
    :param progress: Told of steps, or of seconds, and of how it goes.
    :returns: How it ended.
    :raises TrainingError: If the loss or a gradient is not finite.
    """
    peak, _ = get_peak(trainer.device)
    meter = Meter(budget, progress, peak=peak, first_step=0, used_seconds=0.0)
    parameters = list(trainer.adapter.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    losses: list[float] = []
    num_tokens, reason = 0, ""
    trainer.adapter.train()
    supply: Iterator[RetroBatch] = iter(batches)
    while not reason:
        batch = next(supply)
        loss = trainer.compute_loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(parameters, MAX_GRADIENT_NORM)
        value = float(loss.detach())
        _check_finite(value, float(norm), step=len(losses) + 1)
        done = budget.progress(steps=len(losses), seconds=meter.seconds)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * max(1e-3, rate_factor(done, warmup=WARMUP, final=FINAL))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(value)
        num_tokens += batch.num_tokens
        operations = _count_operations(trainer, batch)
        meter.count(step=len(losses), num_tokens=batch.num_tokens, operations=operations)
        meter.say({"loss": losses[-1]})
        is_used = budget.progress(steps=len(losses), seconds=meter.seconds) >= 1.0
        reason = stop.name if stop else "budget" if is_used else ""
    trainer.adapter.eval()
    return RetroOutcome(
        steps=len(losses),
        seconds=round(meter.seconds, 1),
        num_tokens=num_tokens,
        reason=reason,
        first_loss=_mean(losses[:COMPARED_STEPS]),
        last_loss=_mean(losses[-COMPARED_STEPS:]),
        gates=tuple(round(each, 4) for each in list_gates(trainer.adapter)),
    )


def list_gates(adapter: RetroAdapter) -> list[float]:
    """How far the gates are open.

    :param adapter: The adapter.
    :returns: Factors of what is attended to, from the first layer on; 0 is closed.
    """
    gates = [value for name, value in adapter.named_parameters() if name.endswith(".gate")]
    return [float(torch.tanh(gate.detach())) for gate in gates]


def _check_finite(loss: float, norm: float, *, step: int) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise TrainingError(
            "the loss and its gradients must be finite",
            found=f"loss {loss} and norm {norm} in step {step}; nothing was saved",
            run="cog index verify <id>, to see whether the index is sound",
        )


def _count_operations(trainer: RetroTrainer, batch: RetroBatch) -> float:
    # forward, and backward through the states, of the frozen body; that and the weights' of the
    # adapter, which reads the neighbours
    adapter = sum(p.numel() for p in trainer.adapter.parameters())
    read = 0 if batch.neighbours is None else batch.neighbours.mask.numel()
    return 4.0 * trainer.num_body_weights * batch.inputs.numel() + 6.0 * adapter * read


def _mean(losses: list[float]) -> float:
    return round(sum(losses) / len(losses), 4)
