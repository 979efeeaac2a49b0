"""The errors for names that nothing has: each says what there is, and what was probably meant. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from buildlib.errors import UsageError

CATALOG = "models.yaml"
SHOWN = 12
"""Of the names that there are so many are listed."""


def near(word: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant; upper and lower case count as one."""
    from difflib import get_close_matches

    by_form = {name.casefold(): name for name in known}
    found = get_close_matches(word.casefold(), by_form, 1)
    return by_form[found[0]] if found else None


def unknown(kind: str, word: str, known: Iterable[str], otherwise: str) -> UsageError:
    """The error for a name of models.yaml. kind: model, device, target. otherwise: what to do where none is near."""
    names = list(known)
    meant = near(word, names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return UsageError(
        f"no {kind} is called {word!r}",
        where=CATALOG,
        expected=f"one of {', '.join(names[:SHOWN])}{more}" if names else f"at least one {kind}",
        remedy=f"did you mean {meant!r}?" if meant else otherwise,
    )


def unknown_model(word: str, known: Iterable[str]) -> UsageError:
    """For a model that models.yaml does not have."""
    return unknown("model", word, known, "`doit status` shows all models, `doit new` adds one")


def unknown_device(word: str, known: Iterable[str]) -> UsageError:
    """For a device that models.yaml does not have."""
    return unknown("device", word, sorted(known), "devices are declared in models.yaml, under `devices:`")


def unknown_target(word: str, known: Iterable[str]) -> UsageError:
    """For a target that models.yaml does not have."""
    return unknown("target", word, sorted(known), "targets are declared in models.yaml, under `targets:`")


def check_apart(words: Iterable[str], stages: Iterable[str], models: Iterable[str]) -> None:
    """Raises UsageError where a stage and a model stand beside each other: doit would do the stage of every model.

    `doit publish nopp` looks like `doit unpublish nopp`, and would publish all.
    """
    said = list(words)
    bare, named = [word for word in said if word in set(stages)], [word for word in said if word in set(models)]
    if bare and named:
        meant = " ".join(f"{stage}:{model}" for stage in bare for model in named)
        raise UsageError(
            f"`{' '.join(bare)}` alone means every model, not {' '.join(named)}",
            expected=meant,
            remedy=f"doit {meant}",
        )


def unknown_task(word: str, tasks: Iterable[str], what: str = "task") -> UsageError:
    """For a name that is none of doit's. what: all that it could have been."""
    meant = near(word, tasks)
    return UsageError(
        f"{word!r} is no {what}",
        remedy=f"did you mean {meant!r}?" if meant else "`doit list --all` shows all tasks, `doit help` all commands",
    )
