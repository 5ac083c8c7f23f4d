"""The keywords of api.py's functions are those of the dataclasses that they fill, with their types, so that a type checker knows them."""

import dataclasses
import inspect
from typing import Unpack, get_origin, get_type_hints

import pytest

from electra_trainer import api, keywords
from electra_trainer.data.corpus import PrepareSettings, Reading
from electra_trainer.paper.request import Compare
from electra_trainer.tasks.recipe import Recipe


@pytest.mark.parametrize(
    "typed, filled",
    [
        (keywords.ReadingKeywords, Reading),
        (keywords.PrepareKeywords, PrepareSettings),
        (keywords.RecipeKeywords, Recipe),
        (keywords.CompareKeywords, Compare),
    ],
)
def test_keywords_are_the_fields(typed: type, filled: type) -> None:
    hints, found = get_type_hints(filled), get_type_hints(typed)
    named = inspect.signature(api.compare).parameters if filled is Compare else {}
    names = {field.name for field in dataclasses.fields(filled)} - {*named, "settings", "typed"}
    assert found.keys() == names
    assert {name for name in names if found[name] != hints[name]} <= {"metrics"}  # a list too


def test_every_parameter_has_a_type() -> None:
    for name in api.__all__:
        function = getattr(api, name)
        if inspect.isfunction(function):
            for parameter in inspect.signature(function).parameters.values():
                assert parameter.annotation not in (inspect.Parameter.empty, "Any", object), f"{name}: {parameter}"
                assert parameter.kind is not parameter.VAR_KEYWORD or get_origin(parameter.annotation) is Unpack, name
