"""Packages that not everybody needs: a missing one goes in, what installs it comes out."""

import importlib.util

from cog.errors import MissingPackageError

DISTRIBUTION = "copy-generator"
# the extra that brings a package, by the name it is imported by
EXTRAS = {
    "accelerate": "train",
    "datasets": "hub",
    "dvc": "pipeline",
    "dvc_data": "pipeline",
    "dvc_objects": "pipeline",
    "dvc_s3": "s3",
    "faiss": "cpu",
    "jinja2": "serve",
    "lancedb": "lancedb",
    "matplotlib": "evaluate",
    "mauve": "mauve",
    "mlflow": "evaluate",
    "ray": "ray",
    "scipy": "evaluate",
    "sklearn": "evaluate",
    "starlette": "serve",
    "transformers": "train",
    "uvicorn": "serve",
}


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without doing so."""
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # it is kept from being imported
        return False


def require(package: str) -> None:
    """Refuse to begin what needs one of the packages of ``EXTRAS`` later."""
    if not is_installed(package):
        missing = explain_missing(ModuleNotFoundError(name=package))
        assert missing is not None
        raise missing


def explain_missing(error: ModuleNotFoundError) -> MissingPackageError | None:
    """Say which extra brings what could not be imported; None if none does."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return MissingPackageError(
        f"this needs the package {package}",
        found="it is not installed",
        run=f"pip install '{DISTRIBUTION}[{extra}]'",
    )
