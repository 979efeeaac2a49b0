from __future__ import annotations

import pytest

from buildlib.device_scripts.agent.sconscript import larch64_flags

QCOM = ["DEV=QCOM", "IMAGE=2", "OPENPILOT_HACKS=1"]
TEXT = "DEV=QCOM IMAGE=2 OPENPILOT_HACKS=1"

CASES = {
    "an if": f"""
        def flags():
            if arch == "larch64":
                return "{TEXT}"
            return "DEV=CPU"
    """,
    "an if of another form": f"""
        def flags():
            if "larch64" == env["arch"]: return '{TEXT}'
            elif arch == "Darwin": return "DEV=METAL"
            else: return "DEV=CPU"
    """,
    "an early return of the others": f"""
        def flags(arch):
            if arch != "larch64":
                return "DEV=CPU"
            return "{TEXT}"
    """,
    "a negation": f"""
        def flags(arch):
            if not (arch == "larch64"):
                return "DEV=CPU"
            else:
                return "{TEXT}"
    """,
    "a choice of architectures": f"""
        def flags(arch):
            if arch in ("larch64", "aarch64"):
                return "{TEXT}"
            return "DEV=CPU"
    """,
    "an expression": f"""
        def flags(arch):
            return "{TEXT}" if arch == "larch64" else "DEV=CPU"
    """,
    "texts put together": """
        COMMON = "IMAGE=2"
        def flags(arch):
            hacks = f"OPENPILOT_HACKS=1"
            if arch == "larch64":
                return "DEV=QCOM " + COMMON + " " + hacks
            return "DEV=CPU"
    """,
    "a joined list": """
        def flags(arch):
            if arch == "larch64":
                return " ".join(["DEV=QCOM", "IMAGE=2", "OPENPILOT_HACKS=1"])
    """,
    "a table": f"""
        def flags(arch):
            return {{"larch64": "{TEXT}", "Darwin": "DEV=METAL"}}.get(arch, "DEV=CPU")
    """,
    "a table of flags": """
        def flags(arch):
            if arch == "larch64":
                return {"DEV": "QCOM", "IMAGE": 2, "OPENPILOT_HACKS": "1"}
    """,
    "a variable with a value for each": f"""
        def flags(arch):
            if arch == "larch64":
                chosen = "{TEXT}"
            else:
                chosen = "DEV=CPU"
            return chosen
    """,
    "a variable that gets more": """
        def flags(arch):
            chosen = "DEV=QCOM IMAGE=2"
            if arch == "larch64":
                chosen += " OPENPILOT_HACKS=1"
            return chosen
    """,
    "an if outside functions": f"""
        if arch == "larch64":
            flags = "{TEXT}"
            search = "RPATH=/system/vendor/lib64"
        else:
            flags = "DEV=CPU"
    """,
    "a loop outside functions": f"""
        for model_name in ("driving_vision", "driving_policy"):
            flags = {{"larch64": "{TEXT}", "Darwin": "DEV=METAL"}}.get(arch, "DEV=CPU")
    """,
    "adjacent texts": """
        def flags(arch):
            if arch == "larch64":
                return ("DEV=QCOM IMAGE=2 "
                        "OPENPILOT_HACKS=1")
    """,
}


def dedent(text: str) -> str:
    import textwrap

    return textwrap.dedent(text)


@pytest.mark.parametrize("name", CASES)
def test_flags_of_a_function_are_read_from(name: str):
    assert larch64_flags(dedent(CASES[name])) == {"flags": QCOM}


def test_every_function_that_returns_flags_is_reported():
    text = dedent(f"""
        def plain(arch):
            if arch == "larch64":
                return "{TEXT}"
        def fused(arch):
            if arch == "larch64":
                return "DEV=QCOM IMAGE=2"
            return "DEV=CPU OPENPILOT_HACKS=1"
        def unrelated():
            return "A=1"
        def target(arch):
            return "lib" if arch == "larch64" else "x"
    """)
    assert larch64_flags(text) == {"plain": QCOM, "fused": ["DEV=QCOM", "IMAGE=2"]}


def test_a_table_outside_functions_is_reported_under_its_name():
    text = f"tg_flags = {{'larch64': '{TEXT}', 'Darwin': 'DEV=METAL'}}.get(arch, 'DEV=CPU')"
    assert larch64_flags(text) == {"tg_flags": QCOM}


@pytest.mark.parametrize("text", ["", "def f(:", "\0", "x = x\ndef f(arch):\n  if arch == 'larch64': return x"])
def test_a_text_that_says_nothing_gives_nothing(text: str):
    assert larch64_flags(text) == {}
