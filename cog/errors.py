"""What can go wrong by design: wanted, found and what to run next go in, one line comes out.

.. code-block:: text

    CogError
    ├── MissingPackageError     a package that an extra brings
    ├── ProjectError            no project here
    ├── ParamsError             params.yaml
    ├── RegistryError           cards and what is active
    │   ├── CorpusNotFoundError
    │   ├── InvalidCardError
    │   └── NothingActiveError
    ├── AssetError              fetching
    ├── CorpusError             raw text and documents
    ├── CheckpointError         the trained model
    │   └── DamagedCheckpointError
    ├── IndexingError           the phrase index
    │   ├── IndexNotBuiltError
    │   └── IndexMismatchError
    ├── GenerationError         prefixes and decoding
    ├── TrainingError           training text, batches and the loop
    ├── EvaluationError         prompts, metrics and stored results
    │   └── ProtocolError       scores that may not be put side by side
    ├── TrackingError           MLflow
    └── ServeError              the server cannot start
        └── RequestError        a request to it cannot be used
"""

import errno


class CogError(Exception):
    """A failure that is stated to the user in one line.

    :param wanted: What the operation needed, as a clause.
    :param found: What was there instead.
    :param run: The command, or the edit, that mends it; empty if there is none.
    :param about: What the error is about, where a caller asks: a field, a checkpoint.
    """

    def __init__(self, wanted: str, *, found: str = "", run: str = "", about: str = "") -> None:
        self.wanted, self.found, self.run = map(spell_surrogates, (wanted, found, run))
        self.about = about
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = [self.wanted]
        if self.found:
            parts.append(f"found: {self.found}")
        if self.run:
            parts.append(f"next: {self.run}")
        return " ".join("; ".join(parts).split())


def spell_surrogates(text: str) -> str:
    """Spell lone surrogates, which names in JSON and of files may hold, so that it can be shown."""
    return text.encode("utf-8", "backslashreplace").decode()


def advise_on_writing(error: OSError) -> str:
    """What to do where something cannot be written."""
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return "get the right to write there"
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG):
        return "name another place"
    return "make room there"


class ProjectError(CogError):
    """There is no cog project where one was expected."""


class MissingPackageError(CogError):
    """A package that an extra brings is not installed."""


class ParamsError(CogError):
    """params.yaml is missing, malformed or holds an unknown key."""


class RegistryError(CogError):
    """The registry cannot do what was asked."""


class CorpusNotFoundError(RegistryError):
    """No card has this corpus id."""


class InvalidCardError(RegistryError):
    """A card breaks the schema."""


class NothingActiveError(RegistryError):
    """No corpus is switched on, and none was named."""


class AssetError(CogError):
    """Something could not be fetched, or is not what its checksum says."""


class CorpusError(CogError):
    """Raw text or documents are not usable."""


class CheckpointError(CogError):
    """The trained model's files are missing or inconsistent."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint of a run cannot be read; the one before it may be whole."""


class IndexingError(CogError):
    """The phrase index could not be built or read."""


class IndexNotBuiltError(IndexingError):
    """The corpus has no index."""


class IndexMismatchError(IndexingError):
    """The index belongs to another model, another corpus version, or is damaged."""


class GenerationError(CogError):
    """A prefix or a decoding setting cannot be used."""


class TrainingError(CogError):
    """Training cannot start, or had to stop."""


class EvaluationError(CogError):
    """An evaluation cannot be run, or its stored result not be used."""


class ProtocolError(EvaluationError):
    """Scores of different protocols were to be put side by side."""


class TrackingError(CogError):
    """MLflow refused or is out of reach."""


class ServeError(CogError):
    """The server cannot start, or not as it was asked to."""


class RequestError(ServeError):
    """A request to the server cannot be used."""
