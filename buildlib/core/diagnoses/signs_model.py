"""Signs in logs of what is wrong with a model: its source, its artifact, its run (guide, sections 7, 10, 11)."""

from __future__ import annotations

from typing import Final

from buildlib.core.diagnoses.sign import COPY_AGAIN, Sign

_REBUILD: Final = "rebuild on the device with DEV=QCOM, WARP_DEV=QCOM and OPENPILOT_HACKS=1"

SOURCE: Final = (
    Sign(
        code="lfs_pointer",
        pattern=r"git-lfs pointer|Git LFS pointer|version https://git-lfs\.github\.com|\d+ is not a valid WireType",
        cause="the ONNX is no ONNX: a Git LFS pointer was given in its place, or the file is damaged",
        remedy="git lfs pull in the models repository, then compare the size with what you expect",
        guide="2",
    ),
    Sign(
        code="input_changed",
        pattern=r"changed (while|during) .{0,40}(compile|upload|step|copy)|an input moved while",
        cause="the ONNX, or the toolchain, changed while it was used: nothing was recorded",
        remedy="run it again with nobody editing",
        guide="3",
    ),
)

ARTIFACT: Final = (
    Sign(
        code="sha_mismatch",
        pattern=r"SHA(256)? mismatch|stale cached SHA|sha256 (mismatch|does not match|differs)|checksum mismatch",
        cause="the file is not the one that the manifest names: stale, half copied, or replaced by hand before it was "
        "published. It need not be the only fault",
        remedy="compare the sha256 with selector's and fetcher's; publish first, or select it again; look for others",
        guide="14",
    ),
    Sign(
        code="truncated",
        pattern=r"pickle data was truncated|Ran out of input|artifact is cut off|EOFError",
        cause="the artifact is incomplete: an interrupted copy",
        remedy=COPY_AGAIN,
        guide="11",
    ),
    Sign(
        code="not_a_pickle",
        pattern=r"UnpicklingError: invalid load key",
        cause="the artifact is no pickle: a Git LFS pointer (key 'v'), a web page ('<') or a damaged file",
        remedy="doit inspect FILE names what it is; fetch the file itself and compare the sha256",
        guide="11",
    ),
    # facts 5: sunnypilot 1988
    Sign(
        code="stale_artifact",
        pattern=r"KeyError: \(?'(input_devices|run_policy|run_model|metadata|frame_skip|output_slices|input_shapes"
        r"|input_specs|output_specs)'|has no warp JITs|no warp JIT for \d+x\d+|KeyError: \(\d+, \d+\)",
        cause="a stale artifact, or one of another compile script: the runtime looks for what is not in it",
        remedy="doit inspect FILE shows what is in it; compile with this runtime's script and all its cameras",
        guide="11",
    ),
    Sign(
        code="jit_args",
        pattern=r"args mismatch in JIT|JIT argument mismatch|JIT compatibility mismatch|runtime JIT mismatch",
        cause="the artifact does not match the runtime: another frame_skip, backend or contract, or an old artifact "
        "that is still loaded",
        remedy="doit inspect FILE, then " + _REBUILD + "; make sure that the new file is the one that is loaded",
        guide="11",
    ),
    Sign(
        code="cpu_in_qcom",
        pattern=r"^(?=.*expected_input_info)(?=.*'CPU')(?=.*'QCOM')"
        r"|device captured=\[[^\]\n]{0,80}'CPU'[^\]\n]{0,80}\] expected=QCOM",
        block=r"(?s)\A(?=.*expected_input_info=\[)(?=.*'CPU'\))(?=.*'QCOM'\))",
        cause="CPU on one side and QCOM on the other: compiled on the wrong backend or in the wrong environment",
        remedy=_REBUILD,
        guide="11",
    ),
    Sign(
        code="queue_depth",
        pattern=r"\barg=(?P<captured>\d{1,4}) (vs\.?|!=|instead of) arg=(?P<passed>\d{1,4})\b"
        r"|queue-depth captured=(?P<captured2>\d{1,4}) expected=(?P<passed2>\d{1,4})",
        cause="a queue of another depth: compiled with another frame_skip (depth 5 is frame_skip 4)",
        remedy="compile with the runtime's --frame-skip, 4 on IQPilot",
        guide="11",
    ),
    Sign(
        code="shape_mismatch",
        pattern=r"shape mismatch|size mismatch.{0,40}(tensor|reshape)|can't (reshape|expand) |PoseNET.{0,60}mismatch",
        cause="shapes do not fit: other flags than stock's, most often OPENPILOT_HACKS=1 missing",
        remedy="check SConscript and the model's flags, then " + _REBUILD,
        guide="1",
    ),
    Sign(
        code="compile_check",
        pattern=r"^error: (?P<what>.+)",
        cause="the compile script's own check refused it, in these words",
        remedy="look at what it names: the ONNX (doit inspect FILE), the flags, the arguments; nothing was written",
        guide="6",
    ),
    Sign(
        code="host_limit",
        pattern=r"exceeds GitHub's file size limit|GH001: Large files|this exceeds .{0,40}file size limit",
        cause="the host refuses files of this size",
        remedy="set large_files: lfs or chunks for this target",
        guide="15",
    ),
)

RUNTIME: Final = (
    Sign(
        code="watchdog",
        pattern=r"[Ww]atchdog timeout|deadlock|stall(ed)? .{0,30}(model|iqmodeld)"
        r"|(iqmodeld|modeld) .{0,40}(stall|froze|frozen|hung)",
        cause="the model process stopped answering: flags that differ from stock, or a deadlock that only a real "
        "launch shows",
        remedy="recompile with the known-good flags, run the harness, then boot normally and go onroad",
        guide="11",
    ),
    Sign(
        code="ui_frozen",
        pattern=r"(?i)\bui\b.{0,60}(froze\b|frozen|freezes|not responding|unresponsive|hung\b|hangs\b)",
        cause="the UI stands still: the model pipeline collapsed, or keeps the machine busy. Most freezes leave no "
        "line in a log: only a person sees them",
        remedy="read the tmux pane from before it; recompile with the known-good flags, then go onroad and look at it",
        guide="10",
    ),
    Sign(
        code="model_died",
        pattern=r"(iqmodeld|modeld)\b.{0,120}(exitcode|exited|died|dead|crash|defunct|zombie|not running|segfault)"
        r"|(restarting|died|dead).{0,40}(iqmodeld|modeld)|\[(iqmodeld|modeld)[^\]]{0,40}\] <defunct>",
        cause="the model process died or became a zombie",
        remedy="read /data/community/crashes/error.log and the tmux pane from before it: the cause stands there",
        guide="10",
    ),
    Sign(
        code="services_dead",
        pattern=r"(not_alive|not alive|not_freq_ok|dead|died|invalid)\b.{0,200}\b(modelV2|livePose|iqPlan)\b"
        r"|\b(modelV2|livePose|iqPlan)\b.{0,60}(not alive|died|dead|invalid|timed out)",
        cause="services behind the model stopped: the model pipeline collapsed",
        remedy="find why the model process stopped; these only follow it",
        guide="10",
    ),
    Sign(
        code="comm_issue",
        pattern=r"commIssue",
        times=3,
        cause="commIssue spam: the model pipeline collapsed",
        remedy="find why the model process stopped; these only follow it",
        guide="10",
    ),
    Sign(
        code="segfault",
        pattern=r"Segmentation fault|core dumped|SIGSEGV|Fatal Python error",
        cause="native code crashed: kernels and driver run outside Python's care",
        remedy="validate again; if it repeats, compile again and keep the core's last lines",
        guide="10",
    ),
)

WARNINGS: Final = (
    Sign(
        code="dtype_mismatch",
        pattern=r"input \w+ has mismatch on dtype\. Expected dtypes\.half, received dtypes\.float",
        cause="the ONNX has float16 inputs and gets float32: seen in every successful build",
        remedy="nothing, unless validation fails",
        guide="7",
        severity="note",
    ),
    Sign(
        code="dtype_mismatch_other",
        pattern=r"input \w+ has mismatch on dtype\. Expected (?!dtypes\.half, received dtypes\.float)",
        cause="an input has another dtype than the ONNX declares, and not the usual float32 for float16",
        remedy="look at the ONNX's inputs: doit inspect; validate on the device",
        guide="7",
        severity="warning",
    ),
)
