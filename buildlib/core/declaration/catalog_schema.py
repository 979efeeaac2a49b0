"""JSON schema of models.yaml for editors: `python -m buildlib.core.declaration.catalog_schema > models.schema.json`."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from buildlib.core.declaration.catalog_file import File

FILE_NAME = "models.schema.json"
SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def catalog_schema() -> dict[str, Any]:
    """The schema of `catalog_file.File`. Looser than the parser in what no schema can say (references, duplicates)."""
    schema: dict[str, Any] = json.loads(json.dumps(msgspec.json.schema(File)))
    return {"$schema": SCHEMA, "title": "models.yaml", **schema}


def schema_text() -> str:
    """The file as it is checked in."""
    return json.dumps(catalog_schema(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
