"""Counts of a server: what happened goes in, Prometheus's text format comes out."""

import threading
from collections import defaultdict
from collections.abc import Mapping

from cog.records import CORPUS, Generation

PARTS = ("retrieve", "gather", "decode")
SECONDS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0)  # upper ends of the buckets
Labels = tuple[tuple[str, str], ...]
HELP = {
    "cog_requests_total": ("counter", "Requests by route and status."),
    "cog_texts_total": ("counter", "Texts by how they ended."),
    "cog_tokens_total": ("counter", "Tokens written."),
    "cog_copies_total": ("counter", "Copies written."),
    "cog_part_seconds_total": ("counter", "Seconds of finished texts by part."),
    "cog_first_segment_seconds": ("histogram", "Seconds from a request to its first segment."),
    "cog_texts_running": ("gauge", "Texts that are being written."),
    "cog_texts_waiting": ("gauge", "Texts that wait for a place."),
    "cog_texts_waiting_limit": ("gauge", "Texts that may wait."),
    "cog_indexes_open": ("gauge", "Indexes that are open."),
}


class Metrics:
    """Counts since the start; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._buckets = [0] * (len(SECONDS) + 1)
        self._first_seconds = 0.0

    def count_request(self, route: str, status: int) -> None:
        """Count an answer; the route is a template, never a path as it was asked for."""
        with self._lock:
            self._counts["cog_requests_total"][("route", route), ("status", str(status))] += 1

    def count_text(self, outcome: str, generation: Generation | None = None) -> None:
        """Count a text that ended: ``written``, ``failed``, ``left`` by its client, or ``late``."""
        with self._lock:
            self._counts["cog_texts_total"][(("outcome", outcome),)] += 1
            if generation is None:
                return
            copies = sum(segment.origin == CORPUS for segment in generation.segments)
            self._counts["cog_tokens_total"][()] += generation.num_tokens
            self._counts["cog_copies_total"][()] += copies
            for part in PARTS:
                seconds = generation.seconds.get(part, 0.0)
                self._counts["cog_part_seconds_total"][(("part", part),)] += seconds

    def count_first_segment(self, seconds: float) -> None:
        """Count how long somebody waited for the first words."""
        with self._lock:
            self._buckets[sum(seconds > end for end in SECONDS)] += 1
            self._first_seconds += seconds

    def format(self, gauges: Mapping[str, float]) -> str:
        """Write everything in Prometheus's text format, version 0.0.4."""
        lines = []
        with self._lock:
            for name, (kind, meaning) in HELP.items():
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
                if kind == "gauge":
                    lines.append(f"{name} {gauges[name]:g}")
                elif kind == "histogram":
                    lines += self._format_histogram(name)
                else:
                    counts = self._counts.get(name) or {(): 0.0}
                    lines += [_format(name, labels, value) for labels, value in counts.items()]
        return "\n".join(lines) + "\n"

    def _format_histogram(self, name: str) -> list[str]:
        lines, total = [], 0
        for end, count in zip((*map(str, SECONDS), "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(_format(f"{name}_bucket", (("le", end),), total))
        return [*lines, f"{name}_sum {self._first_seconds:.6g}", f"{name}_count {total}"]


def _format(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
    return f"{name}{{{shown}}} {value:.15g}" if shown else f"{name} {value:.15g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
