"""All signs, in the order of causes before consequences: a full disk stands before the process that died of it."""

from __future__ import annotations

from typing import Final

from buildlib.core.diagnoses.signs_environment import ENVIRONMENT, TOOLCHAIN
from buildlib.core.diagnoses.signs_model import ARTIFACT, RUNTIME, SOURCE, WARNINGS

SIGNS: Final = (*ENVIRONMENT, *TOOLCHAIN, *SOURCE, *ARTIFACT, *RUNTIME, *WARNINGS)
