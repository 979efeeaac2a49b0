"""Kinds of source, one file each, found by name: `kind: url` is `buildlib/sources/url.py`."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from buildlib.core.catalog import Source
from buildlib.ports.source import SourceContext, SourceReader


def kind_of(spec: Source) -> str:
    """The source's kind as models.yaml names it."""
    return cast(str, type(spec).__struct_config__.tag)


def reader(spec: Source, context: SourceContext) -> SourceReader:
    """The reader of a source. Imports its kind's file only."""
    module = import_module(f"buildlib.sources.{kind_of(spec)}")
    return cast(SourceReader, module.Reader(spec, context))
