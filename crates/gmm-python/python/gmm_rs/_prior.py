"""Conversion of priors from Python to the engines, and of error messages about priors to Python syntax."""

import json
import os
import re
from collections.abc import Mapping

import numpy as np

from gmm_rs.exceptions import ParameterError

_TABLES = ("weights", "means", "covariances")

# The engines' messages: the table, then the key if the error concerns one key.
_PLACE = re.compile(r"^prior: (weights|means|covariances): (?:(?!flat|lkj)(\w+)(: | (?=is |has )))?")


def as_text(prior):
    """Whether the text of the prior is JSON (else TOML), and the text; None stays None."""
    if prior is None:
        return None
    if isinstance(prior, (str, os.PathLike)):
        with open(prior, encoding="utf-8") as file:
            try:
                return (False, file.read())
            except UnicodeDecodeError as error:
                raise ParameterError(f"{os.fspath(prior)}: byte {error.start} is not valid UTF-8") from None
    if not isinstance(prior, Mapping):
        raise ParameterError(f"prior is {type(prior).__name__}: it must be a dict or the path of a TOML file")
    return (True, json.dumps({table: _table(table, keys) for table, keys in prior.items()}))


def _table(table, keys):
    if table not in _TABLES:
        choices = ", ".join(map(repr, _TABLES))
        raise ParameterError(f"unknown table prior[{table!r}]: the tables of a prior are {choices}")
    if not isinstance(keys, Mapping):
        kind = type(keys).__name__
        raise ParameterError(f"prior[{table!r}] is {kind}: it must be a dict, such as {{'prior': 'flat'}}")
    for key in keys:
        if not isinstance(key, str):
            raise ParameterError(f"prior[{table!r}] has the key {key!r}: keys must be str")
    return {key: _value(f"prior[{table!r}][{key!r}]", value) for key, value in keys.items()}


def _value(place, value):
    """`value` in a form that JSON supports."""
    if value is None or isinstance(value, (str, bool)):
        return value
    numbers = _numbers(value)
    if numbers is None:
        raise ParameterError(f"{place} is {value!r}: it must be one number, or a list with one number per column")
    if not np.isfinite(numbers).all():
        raise ParameterError(f"{place} is {value!r}: it must be finite")
    return numbers.tolist()


def _numbers(value):
    """A float64 array, or None."""
    try:
        array = np.asarray(value)
        return array.astype(np.float64) if array.dtype.kind in "fiuO" else None
    except (TypeError, ValueError, OverflowError):
        return None


def in_words(message, prior):
    """An error message of the engines, with the position given as in Python, or with the name of the file."""
    if isinstance(prior, (str, os.PathLike)) and message.startswith("prior: "):
        return f"{os.fspath(prior)}: {message.removeprefix('prior: ')}"
    found = _PLACE.match(message)
    if found is None:
        return message
    table, key, between = found.groups()
    place = f"prior[{table!r}]" if key is None else f"prior[{table!r}][{key!r}]"
    return f"{place}{between or ': '}{message[found.end():]}"
