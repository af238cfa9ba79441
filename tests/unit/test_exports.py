"""What is public is there, and says what it is."""

import importlib
import inspect
import pkgutil
from itertools import chain

import pytest

import poolsm
import poolsm.testing
import poolsm_runners

CORE = sorted(m.name for m in pkgutil.walk_packages(poolsm.__path__, "poolsm."))
RUNNERS = sorted(m.name for m in pkgutil.walk_packages(poolsm_runners.__path__, "poolsm_runners."))


@pytest.mark.parametrize("package", [poolsm, poolsm.testing], ids=lambda p: p.__name__)
def test_all_resolves_without_doubles(package):
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert hasattr(package, name), name


@pytest.mark.parametrize("package", [poolsm, poolsm.testing], ids=lambda p: p.__name__)
def test_nothing_public_is_left_out_of_all(package):
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public <= set(package.__all__)


@pytest.mark.parametrize("name", [*CORE, *RUNNERS])
def test_everything_public_has_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__ or name.endswith("__main__"), f"{name} says nothing"
    for member in own(module):
        assert text_of(member), f"{name}.{member.__qualname__} says nothing"


def own(module):
    """Public functions and classes that a module defines, and their public methods."""
    found = [
        value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]
    methods = chain.from_iterable(
        (
            getattr(value, "__func__", getattr(value, "fget", value))
            for name, value in vars(kind).items()
            if not name.startswith("_")
            and isinstance(value, classmethod | staticmethod | property | type(own))
        )
        for kind in found
        if inspect.isclass(kind)
    )
    return [*found, *methods]


def text_of(member):
    text = member.__doc__ or ""
    # attrs and named tuples give a signature where there is no docstring
    return text and not text.startswith(f"{member.__name__}(")
