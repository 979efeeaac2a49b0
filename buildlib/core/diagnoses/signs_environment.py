"""Signs in logs of what is wrong around a model: machine, network, and toolchain (facts, sections 2, 5, 6)."""

from __future__ import annotations

from typing import Final

from buildlib.core.diagnoses.sign import COPY_AGAIN, Sign

_CACHES: Final = (
    "use the writable cache directories (HOME=/data/root-home, XDG_CACHE_HOME=/data/root-cache, "
    "UV_CACHE_DIR=/data/root-uv-cache, TMPDIR=/data/root-tmp) and the exact sudo env command"
)

ENVIRONMENT: Final = (
    Sign(
        code="disk_full",
        pattern=r"No space left on device|database or disk is full|ENOSPC|Disk quota exceeded",
        cause="the disk is full: whatever was being written is incomplete",
        remedy="free space (old backups and caches first: doit gc), then run it again",
        guide="11",
    ),
    Sign(
        code="out_of_memory",
        pattern=r"Out of memory: Kill|oom-kill|oom_reaper|^Killed$|\bKilled\b.{0,80}python|MemoryError"
        r"|Cannot allocate memory"
        r"|exit(ed with)? (status|code)[ :=]*(137|-9)\b|signal 9\b|SIGKILL",
        cause="the process was killed, most often because memory ran out",
        remedy="compile offroad with nothing else running; one compile at a time; then look at dmesg",
    ),
    Sign(
        code="cache_unwritable",
        pattern=r"(PermissionError|Read-only file system|Permission denied).{0,200}\.cache"
        r"|unable to open database file|attempt to write a readonly database",
        block=r"(?s)\A(?=.*(diskcache|db_connection|CACHEDB))"
        r"(?=.*^(PermissionError|FileNotFoundError|NotADirectoryError|OSError|sqlite3\.OperationalError))",
        cause="tinygrad's cache cannot be written: /root/.cache, or a shell outside the expected environment",
        remedy=_CACHES,
        guide="11",
    ),
    Sign(
        code="read_only",
        pattern=r"Read-only file system|EROFS",
        cause="the target lies on a read-only file system; / is read-only on the device",
        remedy="write below /data; remount nothing",
        guide="4",
    ),
    Sign(
        code="permission",
        pattern=r"PermissionError|[Pp]ermission denied|Operation not permitted",
        unless=r"\(publickey|\.cache",
        cause="a file or directory belongs to another user: caches and temporary directories of root, most often",
        remedy=_CACHES,
        guide="11",
    ),
    Sign(
        code="sudo",
        pattern=r"sudo: .{0,80}(password is required|terminal is required|no tty present|not allowed|askpass)"
        r"|is not in the sudoers file|sudo: (a|the) .{0,40}required",
        cause="sudo asks for a password, or the user may not use it",
        remedy="allow the user passwordless sudo on the device, or set sudo: false with paths it owns",
        guide="5",
    ),
    # facts 6
    Sign(
        code="ssh_key",
        pattern=r"Permission denied \(publickey|Too many authentication failures|No existing session"
        r"|Authentication failed",
        cause="the device refused the key",
        remedy="set identity to the right key file; offer no agent with many keys",
        guide="3",
    ),
    Sign(
        code="host_key",
        pattern=r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|not found in known_hosts",
        cause="the device's host key is unknown or another one",
        remedy="compare the fingerprint on the device itself, then doit doctor --trust DEVICE SHA256:...",
        guide="3",
    ),
    Sign(
        code="unreachable",
        pattern=r"Connection refused|Connection timed out|No route to host|Could not resolve hostname"
        r"|Network is unreachable",
        cause="the device does not answer at that address",
        remedy="is it on, and on this network? Check host and port in models.yaml",
        guide="3",
    ),
    # facts 5: paramiko 151, 1871, 1906, 1917, 1918; pyinfra 1140
    Sign(
        code="transfer_broken",
        pattern=r"size mismatch in (put|get)|size mismatch!|[Uu]pload.{0,80}size mismatch|Connection reset by peer"
        r"|Broken pipe|EOF during negotiation|Server connection dropped|lost connection",
        cause="a transfer broke off, the file changed meanwhile, or the device's disk was full",
        remedy=COPY_AGAIN,
        guide="11",
    ),
)

TOOLCHAIN: Final = (
    Sign(
        code="no_kgsl",
        pattern=r"/dev/kgsl",
        cause="a QCOM artifact was opened, or DEV=QCOM used, where there is no Adreno GPU: a workstation can only read "
        "such an artifact statically",
        remedy="compile and load on the device; on the workstation: doit inspect FILE",
        guide="11",
    ),
    Sign(
        code="no_clang",
        pattern=r"No such file or directory: '[^']{0,100}\bclang[^']{0,20}'|clang: (command )?not found",
        cause="DEV=CPU needs a clang executable, to compile and to load a pickle",
        remedy="install clang, or ziglang and let the build write its wrapper; CC is run as ONE path",
    ),
    Sign(
        code="old_device_flag",
        pattern=r"AssertionError: \w+=1 is deprecated, use DEV=",
        cause="an old device variable (QCOM=1, CPU=1, GPU=1) is set, and DEV is not",
        remedy="unset it and set DEV; compile with an environment that inherits nothing",
        guide="5",
    ),
    Sign(
        code="unknown_device",
        pattern=r"No module named 'tinygrad\.runtime\.ops_\w+'",
        cause="DEV names a device that this tinygrad does not have",
        remedy="correct DEV (QCOM, CPU) in the model's profile",
        guide="5",
    ),
    Sign(
        code="flag_no_number",
        pattern=r"invalid literal for int\(\) with base 10: '(true|false|yes|no|on|off)'",
        cause="a flag has a word where tinygrad wants a number (IMAGE=true raises)",
        remedy="write numbers: IMAGE=2, FLOAT16=1",
        guide="5",
    ),
    # facts 2 and 5: sunnypilot 2038
    Sign(
        code="other_tinygrad",
        pattern=r"Can't get attribute '\w+' on <module 'tinygrad|\d+ is not a valid (Ops|AxisType|OptOps|AddrSpace)"
        r"|(DType|PtrDType|ImageDType|UOp|Buffer|CapturedJit|_?TinyJit|KernelInfo|ProgramSpec)(\.\w+)?\(\) "
        r"(takes|missing|got an unexpected)|No module named 'tinygrad\.(?!runtime\.ops_)"
        r"|cannot import name '\w+' from 'tinygrad",
        cause="the tinygrad that runs is not the one that compiled the artifact, or that the script was written for",
        remedy="compile with the device's own tinygrad; compare its commit with the one recorded for the artifact",
        guide="11",
    ),
    Sign(
        code="no_tinygrad",
        pattern=r"No module named '(tinygrad|openpilot|extra)(\.\w+)*'",
        unless=r"No module named 'tinygrad\.",
        cause="Python does not find tinygrad or openpilot",
        remedy="PYTHONPATH=/data/openpilot:/data/openpilot/tinygrad_repo with /usr/local/venv's python",
        guide="5",
    ),
    # facts 5: tinygrad 12704
    Sign(
        code="unsupported_op",
        pattern=r"NotImplementedError: op=|op='\w+' is not supported|Unsupported (op|operator)\b",
        cause="this tinygrad does not know an operation of the model; other models can go on",
        remedy="take the tinygrad that the model was made for, or another export of the model",
    ),
    # facts 5: tinygrad 16335, 16191, 6958
    Sign(
        code="jit_differs",
        pattern=r"outputs (differ from|match) baseline|captured jit and a direct run.{0,60}disagree"
        r"|jit (output|result)s? differ",
        cause="the captured jit computes something else than a direct run: a backend bug after a tinygrad change",
        remedy="do not publish it; compile with the last good tinygrad and compare",
        guide="18",
    ),
)
