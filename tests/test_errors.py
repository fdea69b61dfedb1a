import pickle

import pytest

from cog import errors
from cog.errors import CogError, CorpusNotFoundError, IndexMismatchError, RegistryError


def iter_errors(kind: type[CogError] = CogError) -> list[type[CogError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in iter_errors(child))]


def test_error_says_wanted_found_and_next_in_one_line() -> None:
    error = CogError("wanted\nthis", found="that\t one", run="cog status", about="x")
    assert str(error) == "wanted this; found: that one; next: cog status"
    assert (error.wanted, error.found, error.run, error.about) == (
        "wanted\nthis",
        "that\t one",
        "cog status",
        "x",
    )


def test_error_leaves_out_what_is_empty() -> None:
    assert str(CogError("wanted")) == "wanted"
    assert str(CogError("wanted", run="cog status")) == "wanted; next: cog status"


def test_names_end_in_error_and_all_are_drawn_in_the_docstring() -> None:
    assert errors.__doc__ is not None
    for kind in iter_errors():
        if kind.__module__ == errors.__name__:
            assert kind.__name__.endswith("Error")
            assert kind.__name__ in errors.__doc__


@pytest.mark.parametrize(
    ("kind", "parent"), [(CorpusNotFoundError, RegistryError), (IndexMismatchError, CogError)]
)
def test_errors_are_caught_by_their_parents(kind: type[CogError], parent: type[CogError]) -> None:
    with pytest.raises(parent, match="wanted"):
        raise kind("wanted")


def test_error_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(CogError("wanted", found="x", run="y", about="z")))
    assert (str(error), error.about) == ("wanted; found: x; next: y", "z")
