"""Each sign in the log where it was really seen, or in the words of the guide, and what must not be taken for one.

The files in `logs/` are what tinygrad 0.12 to 0.14 really printed, with paths of a device.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from buildlib.core.diagnoses.diagnosis import Diagnosis, diagnose
from buildlib.core.diagnoses.signs import SIGNS

LOGS = Path(__file__).parent / "logs"


def codes(diagnosis: Diagnosis) -> list[str]:
    return [one.code for one in diagnosis.findings]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("skip.12", ["jit_frame_skip", "jit_args"]),
        ("skip.13", ["jit_frame_skip", "jit_args"]),
        ("skip.14", ["jit_frame_skip", "jit_args"]),
        ("names.14", ["jit_names", "jit_args"]),
        ("dev.12", ["jit_device", "jit_args"]),
        ("dev.14", ["jit_device", "jit_args"]),
        ("dtype.13", ["jit_dtype", "jit_args"]),
        ("cachedb", ["cache_unwritable"]),
        ("perm", ["cache_unwritable"]),
        ("noclang", ["no_clang"]),
        ("qcom13", ["no_kgsl"]),
        ("loadqcom", ["no_kgsl"]),
        ("cudaodd", ["unknown_device"]),
        ("imagetrue", ["flag_no_number"]),
        ("oldqcom", ["old_device_flag"]),
        ("load12in14", ["other_tinygrad"]),
        ("load13in14", ["other_tinygrad"]),
        ("load14in13", ["other_tinygrad"]),
        ("importold2", ["other_tinygrad"]),
        ("importold", ["no_tinygrad"]),
        ("trunc", ["truncated"]),
        ("lfs", ["lfs_pointer"]),
        ("key", ["stale_artifact"]),
        ("badop", ["unsupported_op"]),
    ],
)
def test_real_logs_are_known(log: str, expected: list[str]) -> None:
    found = diagnose((LOGS / f"{log}.txt").read_text())
    assert codes(found) == expected
    assert found.unknown is None
    assert all(one.remedy and one.cause and one.evidence and one.line for one in found.findings)


LINES = [
    ("disk_full", "OSError: [Errno 28] No space left on device"),
    ("disk_full", "sqlite3.OperationalError: database or disk is full"),
    ("out_of_memory", "Killed"),
    ("out_of_memory", "[ 1234.5] Out of memory: Killed process 812 (python) total-vm:5120000kB"),
    ("out_of_memory", "compile exited with status 137"),
    ("cache_unwritable", "sqlite3.OperationalError: unable to open database file"),
    ("cache_unwritable", "PermissionError: [Errno 13] Permission denied: '/root/.cache/tinygrad/cache.db'"),
    ("read_only", "cp: cannot create regular file '/usr/x': Read-only file system"),
    ("permission", "PermissionError: [Errno 13] Permission denied: '/data/media/0/models/a.pkl'"),
    ("permission", "cp: cannot create regular file 'a.pkl': Permission denied"),
    ("sudo", "sudo: a password is required"),
    ("sudo", "sudo: a terminal is required to read the password; either use the -S option"),
    ("sudo", "iq is not in the sudoers file.  This incident will be reported."),
    ("ssh_key", "iq@192.0.2.7: Permission denied (publickey)."),
    ("host_key", "Host key verification failed."),
    ("unreachable", "ssh: connect to host 192.0.2.7 port 22: No route to host"),
    ("transfer_broken", "OSError: size mismatch in put!  118912 != 124861"),
    ("transfer_broken", "client_loop: send disconnect: Broken pipe"),
    ("no_clang", "/bin/sh: 1: clang: not found"),
    ("other_tinygrad", "ModuleNotFoundError: No module named 'tinygrad.uop'"),
    ("no_tinygrad", "ModuleNotFoundError: No module named 'tinygrad'"),
    ("no_tinygrad", "ModuleNotFoundError: No module named 'openpilot.common'"),
    ("jit_differs", "AssertionError: outputs differ from baseline (seed=42)"),
    ("input_changed", "error: the ONNX changed while the compile ran"),
    ("sha_mismatch", "RuntimeError: supercombo artifact SHA mismatch: expected 3f9a, got c177 for /data/x.pkl."),
    ("truncated", "EOFError: Ran out of input"),
    ("not_a_pickle", "_pickle.UnpicklingError: invalid load key, 'v'."),
    ("stale_artifact", "RuntimeError: no warp JIT for 1928x1208; have [(1344, 760)]"),
    ("stale_artifact", "ValueError: supercombo pkl has no warp JITs"),
    ("stale_artifact", "KeyError: (1928, 1208)"),
    ("jit_args", "RuntimeError: supercombo artifact JIT argument mismatch: run_policy captured=['a'] expected=['b']"),
    ("queue_depth", "1344x760 queue-depth captured=3 expected=5"),
    ("queue_depth", "JitError: shapes arg=2 vs arg=5"),
    ("cpu_in_qcom", "expected_input_info=[(v, (), dtypes.uchar, 'CPU')] != expected_input_info=[(v, (), 'QCOM')]"),
    ("cpu_in_qcom", "1344x760 device captured=['CPU', 'NPY'] expected=QCOM"),
    ("shape_mismatch", "RuntimeError: PoseNET/JIT shape mismatch"),
    ("compile_check", "error: captured on another device: expected QCOM, got CPU"),
    ("host_limit", "remote: error: File a.pkl is 119.07 MB; this exceeds GitHub's file size limit of 100.00 MB"),
    ("model_died", "manager: restarting dead process iqmodeld"),
    ("model_died", "iq  812  0.0  0.0  0  0 ?  Z  10:00  0:00 [iqmodeld] <defunct>"),
    ("model_died", "process selfdrive.modeld.modeld exitcode -11"),
    ("watchdog", "Watchdog timeout for iqmodeld (exitcode None) restarting (started=True)"),
    ("ui_frozen", "UI frozen onroad since 10:02"),
    ("ui_frozen", "selfdrive.ui.ui: the ui is not responding for 10 s"),
    ("services_dead", '{"event": "commIssue", "invalid": [], "not_alive": ["modelV2", "livePose"]}'),
    ("segfault", "Segmentation fault (core dumped)"),
    ("dtype_mismatch_other", "input img has mismatch on dtype. Expected dtypes.uchar, received dtypes.float."),
]


@pytest.mark.parametrize(("code", "line"), LINES)
def test_a_line_shows_its_sign(code: str, line: str) -> None:
    found = diagnose(f"starting\n{line}\n")
    assert code in codes(found)
    one = next(one for one in found.findings if one.code == code)
    assert one.line == 2
    assert one.evidence == line


def test_every_sign_has_a_test() -> None:
    real = {"no_kgsl", "unknown_device", "flag_no_number", "old_device_flag", "unsupported_op", "lfs_pointer"}
    spam = {"comm_issue", "dtype_mismatch"}
    assert {sign.code for sign in SIGNS} <= {code for code, _ in LINES} | real | spam


def test_the_codes_of_signs_are_unique() -> None:
    assert len({sign.code for sign in SIGNS}) == len(SIGNS)


GUIDE_7 = """\
input desire_pulse has mismatch on dtype. Expected dtypes.half, received dtypes.float.
input traffic_convention has mismatch on dtype. Expected dtypes.half, received dtypes.float.
input action_t has mismatch on dtype. Expected dtypes.half, received dtypes.float.
input features_buffer has mismatch on dtype. Expected dtypes.half, received dtypes.float.
Saved JITs to /data/media/0/models/driving_supercombo_nopp.recompiled.pkl (119.07 MB)
"""


def test_the_warnings_of_guide_7_are_one_note_and_no_failure() -> None:
    found = diagnose(GUIDE_7)
    assert codes(found) == ["dtype_mismatch"]
    assert (found.findings[0].severity, found.findings[0].count, found.findings[0].guide) == ("note", 4, "7")
    assert found.failures == ()
    assert found.unknown is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1/3] enqueue 1.20 ms -- total 9.31 ms\nall good, 0 errors\n",
        "commIssue\ncommIssue\n",
        "arg=5\n",
        "shape (1, 2) vs (1, 3)\n",
        "modelV2 alive, livePose alive\n",
        "clang version 14.0.6\n",
        "reading /data/models/kgsl_notes.txt\n",
        "killed time waiting\n",
        "Permissions: ok\n",
        "KeyError handling enabled\n",
    ],
)
def test_harmless_text_shows_no_failure(text: str) -> None:
    found = diagnose(text)
    assert found.failures == ()
    assert found.unknown is None


def test_comm_issue_counts_only_as_spam() -> None:
    found = diagnose('{"event": "commIssue"}\n' * 40)
    assert codes(found) == ["comm_issue"]
    assert found.findings[0].count == 40


def test_frame_skip_of_both_sides_is_told() -> None:
    one = diagnose((LOGS / "skip.14.txt").read_text()).findings[0]
    assert (one.captured, one.passed) == ("arg=5 (frame skip 4)", "arg=3 (frame skip 2)")
    assert all(name in one.cause for name in ("img_q", "big_img_q", "feat_q", "desire_q"))
    assert "warped" not in one.cause
    assert one.guide == "11"


def test_cpu_on_one_side_and_qcom_on_the_other_is_told() -> None:
    text = (LOGS / "skip.14.txt").read_text()
    head, _, tail = text.partition("!= expected_input_info=[(UOp")
    tail = tail.replace("'CPU'", "'QCOM'")
    found = diagnose(head + "!= expected_input_info=[(UOp" + tail)
    assert codes(found) == ["jit_device", "jit_frame_skip", "jit_args", "cpu_in_qcom"]
    assert (found.findings[0].captured, found.findings[0].passed) == ("CPU", "QCOM")
    assert "packed_npy_inputs" not in found.findings[0].cause


def test_one_sign_never_hides_another() -> None:
    text = "\n".join(line for _, line in LINES)
    assert {code for code, _ in LINES} <= set(codes(diagnose(text)))


def test_a_sha_mismatch_is_not_the_only_suspect() -> None:
    text = (
        "RuntimeError: supercombo artifact SHA mismatch: expected 3f9a, got c177\n"
        + (LOGS / "skip.14.txt").read_text()
        + "manager: restarting dead process iqmodeld\n"
    )
    found = diagnose(text)
    assert {"sha_mismatch", "jit_frame_skip", "jit_args", "model_died"} <= set(codes(found))


def test_causes_stand_before_consequences_and_notes_last() -> None:
    text = GUIDE_7 + '{"not_alive": ["modelV2"]}\nmanager: restarting dead process iqmodeld\nNo space left on device\n'
    assert codes(diagnose(text)) == ["disk_full", "model_died", "services_dead", "dtype_mismatch"]


UNKNOWN = """\
Traceback (most recent call last):
  File "compile_supercombo.py", line 12, in <module>
    flux.align()
  File "flux.py", line 3, in align
    raise FluxError("the capacitor is out of phase\\n  by a lot")
flux.FluxError: the capacitor is out of phase
  by a lot
"""


def test_an_unknown_error_is_shown_whole_and_called_unknown() -> None:
    found = diagnose("ok\n" + UNKNOWN + "bye\n")
    assert found.findings == ()
    assert found.unknown == UNKNOWN.rstrip("\n")


def test_an_unknown_error_is_shown_beside_known_ones() -> None:
    found = diagnose("No space left on device\n" + UNKNOWN)
    assert codes(found) == ["disk_full"]
    assert found.unknown == UNKNOWN.rstrip("\n")


def test_chained_tracebacks_are_one_error() -> None:
    text = (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in a\n    b()\nKeyError: 'zz'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in a\n    c()\nflux.FluxError: no\nafter\n'
    )
    found = diagnose(text)
    assert found.unknown is not None
    assert found.unknown.startswith("Traceback")
    assert found.unknown.endswith("flux.FluxError: no")
    assert "'zz'" in found.unknown


def test_source_code_in_a_traceback_is_no_sign() -> None:
    text = UNKNOWN.replace("flux.align()", 'raise JitError("args mismatch in JIT: Killed, commIssue, /dev/kgsl-3d0")')
    found = diagnose(text)
    assert found.findings == ()
    assert found.unknown is not None


def test_terminal_codes_and_progress_bars_do_not_get_in_the_way() -> None:
    found = diagnose("\r 10%\r 20%\r\x1b[31mOSError: [Errno 28] No space left\x1b[0m on device\r\n")
    assert codes(found) == ["disk_full"]
    assert found.findings[0].evidence == "OSError: [Errno 28] No space left on device"


def test_a_prefixed_traceback_is_found() -> None:
    text = "".join(f"iqmodeld: {line}\n" for line in UNKNOWN.rstrip("\n").split("\n"))
    found = diagnose(text)
    assert found.unknown is not None
    assert "flux.FluxError" in found.unknown


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "expected_input_info=['CPU' 'QCOM'" * 30_000,
        "args mismatch in JIT: expected_input_info=[" * 20_000,
        "Traceback (most recent call last):\n" * 50_000,
        "(iqmodeld modeld died " * 50_000,
        "arg=1 vs " * 200_000,
        " " * 2_000_000,
        "\n" * 500_000,
        "Permission denied " * 100_000,
        "Traceback (most recent call last):\n" + "  x diskcache\n" * 100_000,
        "\x1b[" * 500_000,
    ],
)
def test_hostile_logs_end(text: str) -> None:
    diagnose(text)
