#!/usr/bin/env python3
"""Drives an installed supercombo artifact as the runtime does, and says whether it is good enough to drive with.

    validate_supercombo.py ARTIFACT (--seconds N | --frames N) [--rate 20] --report PATH [--require-realtime]
                           [--sha256 HEX] [--cameras 1344x760 1928x1208] [--frame-skip 4]

Runs on the device, as one file, on the standard library, numpy and tinygrad (DEV and WARP_DEV as for the compile). A
child process loads the artifact and feeds both views of each camera with moving padded NV12 frames at the rate; this
process watches it, so a child that dies or freezes gets its verdict too. The runtime here knows the contract by itself
and nothing of the compile script. The child's findings come through a pipe, one JSON line each.

The report is written whatever happened, by rename:
  verdict    "good", or the code of the leading finding
  findings   [{code, what, expected, got, frame, count}], the leading one first
  numbers    frames, times in ms for each camera, memory in bytes, load time in s, backend
  proof      which bytes ran: path, sha256 of what the unpickler read, inode, size and times before and after
  asked      frames, rate, realtime, cameras, frame_skip

The exit status is 0, or that of the leading finding (`STATUS`).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import io
import json
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

FORMAT = 1

# A finding's code -> exit status; the first of these that was found is the verdict.
STATUS = {
    "stopped": 30,  # ended from outside: says nothing about the artifact
    "no_artifact": 10,  # the file is missing or cannot be read
    "other_bytes": 11,  # the file is not the one that shall be tested
    "moved": 12,  # the file under the path changed while it ran
    "not_loaded": 13,  # it cannot be unpickled here
    "contract": 14,  # a key, camera, metadata or frame skip is not what the runtime asks for
    "died": 15,  # the process ended by itself
    "frozen": 16,  # no sign of life for too long
    "warp_failed": 17,  # a camera's warp raised
    "policy_failed": 18,  # run_policy raised
    "not_finite": 20,  # NaN or infinity in an output
    "bad_odometry": 21,  # pose, wide camera angles or road transform senseless
    "not_repeatable": 22,  # same in, other out
    "wrong_picture": 27,  # a warp is another projection than the one asked for
    "reads_padding": 24,  # the padding of a frame shows in the picture
    "indifferent": 23,  # other in, same out
    "leaks": 25,  # memory does not stay steady
    "too_slow": 26,  # slower than real time, where that is asked for
    "broken": 40,  # the harness itself failed
}

ODOMETRY = ("pose", "wide_from_device_euler", "road_transform")
MODEL_INPUTS = ("img", "big_img", "features_buffer", "desire_pulse", "traffic_convention", "action_t")
# What the localizer refuses: deviations at or below 1e-5, speeds over 200 m/s, rates over 10 rad/s. Angles over 10 rad
# and a camera over 100 m from the road are no angles and no camera.
LEAST_STD, MOST_SPEED, MOST_RATE, MOST_ANGLE, MOST_HEIGHT = 1e-5, 200.0, 10.0, 10.0, 100.0
# Growth after warming up (`growth`) that no allocator's noise explains, in bytes.
LEAK_OF_PROCESS, LEAK_OF_DEVICE = 6 << 20, 256 << 10
MOST_LATE = 0.01
MOST_GREY = 2
MOST_FINDINGS = 40

Message = dict[str, Any]
Tell = Callable[[Message], None]
Use = Callable[[Any, argparse.Namespace, Tell], None]
"""Drives what was unpickled; findings go to Tell."""


class Failure(Exception):
    """A finding after which nothing more can be tried."""

    def __init__(self, code: str, what: str, expected: str, got: str) -> None:
        super().__init__(what)
        self.finding = {"code": code, "what": what, "expected": expected, "got": got}


class Stopped(Exception):
    """SIGTERM or SIGINT."""


# --- the watchdog ----------------------------------------------------------------------------------------------------


class Watch:
    """What is known of the child: it only grows, so a report can be written at any moment."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.findings: list[Message] = []
        self.frames: list[Message] = []
        self.facts: Message = {}
        self.proof: Message = {"path": str(options.artifact)}
        self.memory: list[tuple[int, int]] = []
        self.doing = "starting python"
        self.phase = "load"
        self.ended = False

    def hear(self, message: Message) -> None:
        if "finding" in message:
            self.add(message["finding"])
        elif "frame" in message:
            self.frames.append(message)
            if message["rss"]:
                self.memory.append((message["frame"], message["rss"]))
        elif "doing" in message:
            self.doing, self.phase = message["doing"], message["phase"]
        self.proof.update(message.get("proof", {}))
        self.facts.update(message.get("facts", {}))
        self.ended = self.ended or "end" in message

    def add(self, finding: Message) -> None:
        """A finding that was made before counts up; the first stays as it is."""
        for known in self.findings:
            if (known["code"], known["what"]) == (finding["code"], finding["what"]):
                known["count"] += 1
                return
        if len(self.findings) < MOST_FINDINGS:
            clipped = {name: text[:2000] if isinstance(text, str) else text for name, text in finding.items()}
            self.findings.append({"frame": len(self.frames) or None, **clipped, "count": 1})

    def where(self) -> str:
        return f"{self.doing}, after {len(self.frames)} frames"

    def report(self) -> Message:
        order = list(STATUS)
        self.findings.sort(key=lambda one: order.index(one["code"]))
        options = self.options
        asked = {
            "frames": options.frames,
            "rate": options.rate,
            "realtime": options.require_realtime,
            "sha256": options.sha256,
            "cameras": [name_of(size) for size in options.cameras or ()],
            "frame_skip": options.frame_skip,
        }
        return {
            "format": FORMAT,
            "verdict": self.findings[0]["code"] if self.findings else "good",
            "findings": self.findings,
            "numbers": self.numbers(),
            "proof": self.proof,
            "asked": asked,
        }

    def numbers(self) -> Message:
        """frames; rate reached in Hz; times in ms; memory in bytes; what the child told of itself."""
        period = 1000 / self.options.rate
        cameras = {
            name: times_of([one["ms"] for one in self.frames if one["camera"] == name], period)
            for name in dict.fromkeys(one["camera"] for one in self.frames)
        }
        numbers = times_of([one["ms"] for one in self.frames], period)
        numbers["cameras"] = cameras
        if len(self.frames) > 1:
            took = self.frames[-1]["at"] - self.frames[0]["at"]
            numbers["seconds"] = round(took, 3)
            numbers["rate"] = round((len(self.frames) - 1) / took, 2) if took else None
        # Cameras differ in the size of their frames: each is compared with itself.
        device = [
            growth([(one["frame"], one["mem"]) for one in self.frames if one["camera"] == name], len(self.frames))
            for name in cameras
        ]
        numbers["memory"] = {
            "process": growth(self.memory, len(self.frames)),
            "device": max((one for one in device if one), key=lambda one: one["growth"], default=None),
        }
        return numbers | self.facts


def times_of(times: list[float], period: float) -> Message:
    """frames, median_ms, p99_ms, worst_ms, late: frames that took longer than the period (ms)."""
    if not times:
        return {"frames": 0, "late": 0}
    ordered = sorted(times)
    return {
        "frames": len(ordered),
        "median_ms": round(ordered[len(ordered) // 2], 3),
        "p99_ms": round(ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)], 3),
        "worst_ms": round(ordered[-1], 3),
        "late": sum(one > period for one in ordered),
    }


def growth(samples: list[tuple[int, int]], frames: int) -> Message | None:
    """Bytes by (frame, bytes): the first quarter warms up; the rest is compared by the least of each third.

    growth is twice the smaller of the two climbs: all of a steady leak, nothing of one step or of a sawtooth that
    returns. None with too few samples to tell.
    """
    settled = [sample for sample in samples if sample[0] >= frames // 4]
    third = len(settled) // 3
    if third < 3:
        return None
    thirds = [settled[at * third : (at + 1) * third] for at in range(3)]
    least = [min(bytes_ for _, bytes_ in part) for part in thirds]
    grown = 2 * min(least[1] - least[0], least[2] - least[1])
    between = thirds[2][0][0] - thirds[0][0][0]
    return {
        "start": settled[0][1],
        "end": settled[-1][1],
        "most": max(bytes_ for _, bytes_ in settled),
        "growth": grown,
        "per_frame": round(grown / between) if between else 0,
    }


def watch(options: argparse.Namespace, arguments: list[str], script: str) -> Watch:
    """Runs the child, the same script, to its end, whichever it is."""
    seen = Watch(options)
    reader, writer = os.pipe()
    command = [sys.executable, str(Path(script).resolve()), *arguments, "--child", str(writer)]
    child = subprocess.Popen(command, pass_fds=(writer,), stdin=subprocess.DEVNULL)
    os.close(writer)
    try:
        listen(seen, child.pid, reader)
    except Stopped as stop:
        seen.add(found("stopped", f"ended from outside by {stop}", "to run to its end", seen.where()))
    finally:
        os.close(reader)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5 if seen.ended else 0.2)
        if child.returncode is None:
            child.kill()
        child.wait()
    if not seen.ended and not any(one["code"] in ("frozen", "stopped") for one in seen.findings):
        got = f"{how(child.returncode)} in {seen.where()}"
        seen.add(found("died", "the process died", "to live as long as it is fed", got))
    elif seen.ended and child.returncode:
        seen.add(found("died", "the process died while it ended", "exit status 0", how(child.returncode)))
    judge_run(seen)
    return seen


def listen(seen: Watch, pid: int, reader: int) -> None:
    """Until the child closes the pipe, or is silent for too long: then it is asked where it hangs, and ended."""
    pending = b""
    limits = {"load": seen.options.load_limit, "run": seen.options.stall_limit}
    heard = looked = time.monotonic()
    while True:
        now = time.monotonic()
        silence = limits[seen.phase] - (now - heard)
        if silence <= 0:
            seen.add(
                found("frozen", "no sign of life", f"one within {limits[seen.phase]:g} s", f"none in {seen.where()}")
            )
            # The child writes the stacks of all its threads into the log, even from inside a kernel.
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
            return
        ready, _, _ = select.select([reader], [], [], min(silence, 0.5))
        if ready:
            block = os.read(reader, 65536)
            if not block:
                return
            heard = time.monotonic()
            *lines, pending = (pending + block).split(b"\n")
            for line in lines:
                seen.hear(json.loads(line))
        if sys.platform != "linux" and now - looked >= 1:
            looked = now
            if (size := resident(pid)) and seen.frames:
                seen.memory.append((len(seen.frames), size))


def resident(pid: int | str) -> int:
    """Bytes of memory that a process has now; 0 when nobody can say."""
    if sys.platform == "linux":
        try:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0
    asked = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return int(asked.stdout) * 1024 if asked.stdout.strip().isdecimal() else 0


def frame_message(number: int, camera: str, started: float) -> Message:
    """A frame driven since `started` (perf_counter). Memory in bytes; only on Linux can the child say its own."""
    from tinygrad.helpers import GlobalCounters

    took = (time.perf_counter() - started) * 1000
    rss = resident("self") if sys.platform == "linux" else 0
    return {"frame": number, "camera": camera, "ms": took, "at": started, "mem": GlobalCounters.mem_used, "rss": rss}


def judge_run(seen: Watch) -> None:
    """What only the whole run shows: memory and time."""
    numbers = seen.numbers()
    frames = len(seen.frames)
    for name, limit in (("process", LEAK_OF_PROCESS), ("device", LEAK_OF_DEVICE)):
        memory = numbers["memory"][name]
        if memory and memory["growth"] > limit:
            got = f"{mib(memory['growth'])} more, about {memory['per_frame'] / 1024:.0f} KiB a frame"
            seen.add(found("leaks", f"memory of the {name} grows", f"steady within {mib(limit)} after warming up", got))
    if seen.options.require_realtime and frames:
        for name, times in numbers["cameras"].items():
            if times["late"] > MOST_LATE * times["frames"]:
                period = 1000 / seen.options.rate
                got = f"{times['late']} of {times['frames']} later, median {times['median_ms']:.1f} ms"
                what = f"slower than real time on camera {name}"
                seen.add(found("too_slow", what, f"99% of frames within {period:g} ms", got))


def found(code: str, what: str, expected: str, got: str) -> Message:
    return {"code": code, "what": what, "expected": expected, "got": got}


def how(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"signal {-code}"


def mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def write_report(path: Path, report: Message) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        json.dump(report, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


# --- the child: which bytes ------------------------------------------------------------------------------------------


class Hashed(io.RawIOBase):
    """A file that remembers the sha256 of all that was read of it."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self.sha256.update(memoryview(buffer)[:count])
        return int(count)


def signature(stat: os.stat_result) -> Message:
    return {
        "device": stat.st_dev,
        "inode": stat.st_ino,
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "ctime_ns": stat.st_ctime_ns,
    }


def load(options: argparse.Namespace, file: io.BufferedReader, tell: Tell) -> Any:
    """Unpickles the artifact, and proves which bytes that were. Other bytes than asked for are not unpickled."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    tell({"proof": {"real_path": str(options.artifact.resolve()), "sha256": digest}})
    if options.sha256 not in (None, digest):
        raise Failure("other_bytes", "the file is another than shall be tested", options.sha256, digest)
    file.seek(0)
    reader = Hashed(file)
    buffered = io.BufferedReader(reader, 1 << 20)
    started = time.monotonic()
    try:
        root = pickle.load(buffered)  # noqa: S301 - the artifact that this device is about to run anyway
    except Exception as error:
        raise Failure("not_loaded", "it cannot be loaded here", "a pickle of this tinygrad", said(error)) from error
    tell({"facts": {"load_s": round(time.monotonic() - started, 3)}})
    while buffered.read(1 << 20):
        pass
    if reader.sha256.hexdigest() != digest:
        raise Failure("moved", "the file changed while it was loaded", digest, reader.sha256.hexdigest())
    return root


def check_unmoved(options: argparse.Namespace, file: io.BufferedReader, before: Message, tell: Tell) -> None:
    """The path still names the very file that was loaded, and nobody wrote into it."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        after: Message | None = signature(options.artifact.stat())
    except OSError:
        after = None
    tell({"proof": {"after": after, "sha256_after": digest}})
    if after is None or after["inode"] != before["inode"] or after["device"] != before["device"]:
        raise Failure("moved", "another file lies under the path now", str(before), str(after or "none"))
    if after != before:
        raise Failure("moved", "the file was written into while it ran", str(before), str(after))


def said(error: BaseException) -> str:
    lines = (str(error).strip() or "no message").splitlines()
    return f"{type(error).__name__}: {lines[0]}"


# --- the child: pictures ---------------------------------------------------------------------------------------------


class Camera:
    """A sensor size (pixels) and its frames: padded NV12 as the device's video core lays it out (bytes, rows)."""

    SCENE, ROOM = 64, 255

    def __init__(self, size: tuple[int, int], model_size: tuple[int, int]) -> None:
        import numpy as np

        self.model_size = model_size
        self.size = width, height = size
        self.name = name_of(size)
        self.stride, self.y_rows = up(width, 128), up(height, 32)
        self.uv_rows = up((height + 1) // 2, 16)
        planes = self.stride * (self.y_rows + self.uv_rows)
        self.bytes = up(planes + 4096 + max(16384, 8 * self.stride), 4096) + up(up(width, 512) * 512, 4096)
        # Scenes larger than the picture, through which it moves: slopes below a grey level a pixel, and grain on them.
        rows, columns = height + self.SCENE, width + 2 * self.SCENE
        down, right = np.linspace(0, 1, rows)[:, None], np.linspace(0, 1, columns)
        random = np.random.default_rng(width)
        self.scenes = {}
        for view in (0, 1):
            luma = 20 + 40 * view + 70 * down + 70 * right
            chroma = np.empty((rows // 2, columns))
            chroma[:, 0::2] = 60 + 20 * view + 80 * right[0::2]
            chroma[:, 1::2] = 140 - 20 * view - 80 * down[::2][: rows // 2]
            self.scenes["smooth", view] = (luma.astype(np.uint8), chroma.astype(np.uint8))
            self.scenes["grain", view] = (
                (luma + random.integers(0, 50, luma.shape)).astype(np.uint8),
                (chroma + random.integers(0, 50, chroma.shape)).astype(np.uint8),
            )

    def picture(self, view: int, turn: int, padding: int = ROOM, scene: str = "grain") -> Any:
        """The frame (flat uint8) of the road (view 0) or wide (1) camera at a moment; no two of 32 are alike."""
        import numpy as np

        width, height = self.size
        luma, chroma = self.scenes[scene, view]
        down, right = turn * 2 % self.SCENE, turn * 6 % (2 * self.SCENE)
        frame = np.full(self.bytes, padding, dtype=np.uint8)
        rows = frame[: self.stride * (self.y_rows + self.uv_rows)].reshape(-1, self.stride)
        rows[:height, :width] = luma[down : down + height, right : right + width]
        rows[self.y_rows : self.y_rows + height // 2, :width] = chroma[
            down // 2 : down // 2 + height // 2, right : right + width
        ]
        return frame

    def matrix(self, view: int, turn: int) -> Any:
        """A plausible 3x3 float32 projection, model pixel -> camera pixel, that sways a little."""
        import numpy as np

        width, height = self.size
        zoom = (0.9, 0.7)[view] * width / self.model_size[0]
        sway = 0.01 * math.sin(turn / 7)
        return np.array(
            [[zoom, -sway, 0.05 * width], [sway, 0.8 * zoom, (0.15 + sway) * height], [1e-5, 1e-5, 1.0]],
            dtype=np.float32,
        )


def up(value: int, to: int) -> int:
    return -(-value // to) * to


def name_of(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


# --- the child: the runtime ------------------------------------------------------------------------------------------


class Runtime:
    """What the device's model process does with an artifact: keeps queues and the packed vector, calls both jits."""

    def __init__(self, root: Any, options: argparse.Namespace, tell: Tell) -> None:
        import numpy as np

        self.tell, self.phase = tell, "load"
        self.frame_skip, sizes = check_root(root, options)
        self.run_policy = root["run_policy"]
        self.warps = {name_of(size): root[size] for size in sizes}
        self.slices: dict[str, slice] = root["metadata"]["output_slices"]
        shapes: dict[str, tuple[int, ...]] = root["metadata"]["input_shapes"]
        self.cameras = [Camera(size, (2 * shapes["img"][3], 2 * shapes["img"][2])) for size in sizes]
        features, desire = shapes["features_buffer"], shapes["desire_pulse"]
        self.layout = {
            "desire": math.prod(desire[2:]),
            "traffic_convention": math.prod(shapes["traffic_convention"]),
            "action_t": math.prod(shapes["action_t"]),
            "prev_feat": math.prod(features[2:]),
        }
        self.layout |= {name: math.prod(shape) for name, shape in shapes.items() if name not in MODEL_INPUTS}
        skip = self.frame_skip
        self.queue_shapes: dict[str, tuple[tuple[int, ...], type]] = {
            "img_q": ((skip * (shapes["img"][1] // 6 - 1) + 1, 6, *shapes["img"][2:]), np.uint8),
            "big_img_q": ((skip * (shapes["big_img"][1] // 6 - 1) + 1, 6, *shapes["big_img"][2:]), np.uint8),
            "feat_q": ((skip * features[1], 1, math.prod(features[2:])), np.float32),
            "desire_q": ((skip * desire[1], 1, *desire[2:]), np.float32),
        }
        self.reset()

    def reset(self) -> None:
        """As at the start of a drive: empty queues, no features."""
        import numpy as np
        from tinygrad import Device, Tensor

        self.queues = {
            name: Tensor(np.zeros(shape, kind), device=Device.DEFAULT).contiguous().realize()
            for name, (shape, kind) in self.queue_shapes.items()
        }
        # Written in place, frame by frame, as the device's runtime does.
        self.packed = np.zeros(sum(self.layout.values()), dtype=np.float32)
        self.packed_tensor = Tensor(self.packed, device="NPY").realize()

    def pack(self, **parts: Any) -> None:
        """Fills the packed vector; parts that are not named are 0."""
        at = 0
        for name, size in self.layout.items():
            self.packed[at : at + size] = parts.get(name, 0)
            at += size

    def on_device(self, pictures: list[Any]) -> list[Any]:
        from tinygrad import Tensor

        device = os.environ.get("WARP_DEV") or None
        return [Tensor(picture, device=device).contiguous().realize() for picture in pictures]

    def warp(self, camera: str, matrices: list[Any], frames: list[Any]) -> Any:
        """Both views' frames (tensors) -> (2, 6, H/2, W/2) uint8."""
        from tinygrad import Tensor

        self.tell({"doing": f"the warp of {camera}", "phase": self.phase})
        tfm, big_tfm = (Tensor(matrix, device="NPY").realize() for matrix in matrices)
        try:
            return self.warps[camera](tfm=tfm, big_tfm=big_tfm, frame=frames[0], big_frame=frames[1])
        except Exception as error:
            raise Failure(
                "warp_failed", f"the warp of camera {camera} fails", "a picture for the model", said(error)
            ) from error

    def policy(self, warped: Any) -> Any:
        """One frame on: the flat output, float32."""
        import numpy as np

        self.tell({"doing": "run_policy", "phase": self.phase})
        try:
            outputs = self.run_policy(warped=warped, packed_npy_inputs=self.packed_tensor, **self.queues)
            return np.array(outputs[0].numpy()).reshape(-1)
        except Exception as error:
            raise Failure("policy_failed", "run_policy fails", "an output for each frame", said(error)) from error


def check_root(root: Any, options: argparse.Namespace) -> tuple[int, list[tuple[int, int]]]:
    """(frame skip, cameras) to run with, or a Failure that says what the runtime misses."""

    def miss(what: str, expected: str, got: str) -> NoReturn:
        raise Failure("contract", what, expected, got)

    if not isinstance(root, dict):
        miss("it is no dict of captured jits", "a dict", type(root).__name__)
    for key in ("metadata", "frame_skip", "run_policy"):
        if key not in root:
            miss(f"root key {key} is missing", "metadata, frame_skip, run_policy", ", ".join(map(str, root)))
    metadata = root["metadata"]
    slices, shapes = metadata.get("output_slices"), metadata.get("input_shapes")
    if not isinstance(slices, dict) or not isinstance(shapes, dict):
        miss("metadata is incomplete", "output_slices and input_shapes", ", ".join(map(str, metadata)))
    absent = [name for name in (*ODOMETRY, "hidden_state") if name not in slices]
    absent += [name for name in MODEL_INPUTS if name not in shapes]
    if absent:
        miss("metadata lacks what the runtime reads", "all of it", f"no {', '.join(absent)}")
    skip = options.frame_skip or root["frame_skip"]
    if root["frame_skip"] != skip:
        miss("frame skip is not the runtime's", str(skip), str(root["frame_skip"]))
    there = [key for key in root if isinstance(key, tuple)]
    wanted = options.cameras or there
    if missing := [name_of(size) for size in wanted if size not in there]:
        miss(f"camera {', '.join(missing)} is missing", "a warp for each", ", ".join(map(name_of, there)) or "none")
    if not wanted:
        miss("it has no camera", "one at least", "none")
    return skip, wanted


# --- the child: checks -----------------------------------------------------------------------------------------------


def look(runtime: Runtime, camera: Camera, **change: Any) -> Any:
    """What the model sees of one moment, (2, 6, H/2, W/2). change: one thing that differs from the plain moment."""
    import numpy as np

    turns = change.get("turns", (0, 0))
    scene, padding = change.get("scene", "grain"), change.get("padding", Camera.ROOM)
    frames = runtime.on_device([camera.picture(view, turns[view], padding, scene) for view in (0, 1)])
    matrices = [camera.matrix(view, change.get("sway", 0)) for view in (0, 1)]
    return np.array(runtime.warp(camera.name, matrices, frames).numpy())


def answer(runtime: Runtime, camera: Camera, turns: tuple[int, int] = (0, 0), **vector: Any) -> Any:
    """The last output of some still frames on empty queues.

    As many frames as it takes until the newest features are among those that the model sees.
    """
    runtime.reset()
    runtime.pack(**{"traffic_convention": (1, 0), "action_t": (0.2, 0.3), **vector})
    frames = runtime.on_device([camera.picture(view, turns[view]) for view in (0, 1)])
    matrices = [camera.matrix(view, 0) for view in (0, 1)]
    for _ in range(runtime.frame_skip + 1):
        out = runtime.policy(runtime.warp(camera.name, matrices, frames))
    return out


def check_warp(runtime: Runtime, camera: Camera) -> Iterator[Message]:
    """The right projection, same in same out, other in other out, each view in its own half, nothing of the padding."""
    import numpy as np

    where = f"the warp of {camera.name}"
    plain, again = look(runtime, camera), look(runtime, camera)
    if not np.array_equal(plain, again):
        yield found("not_repeatable", f"{where}: same in, other out", "the same bits", gap(plain, again))
        return  # what follows compares too
    bare = look(runtime, camera, padding=0)
    if not np.array_equal(plain, bare):
        yield found("reads_padding", f"{where}: the padding shows", "the picture alone", gap(plain, bare))
    for view, name in enumerate(("road", "wide")):
        turned = look(runtime, camera, turns=(9, 0) if view == 0 else (0, 9))
        if not np.array_equal(plain[1 - view], turned[1 - view]):
            got = gap(plain[1 - view], turned[1 - view])
            yield found("wrong_picture", f"{where}: the {name} frame shows in the other view", "only in its own", got)
        elif np.array_equal(plain[view], turned[view]):
            yield indifferent(f"{where}: another {name} frame")
    if np.array_equal(plain, look(runtime, camera, sway=11)):
        yield indifferent(f"{where}: another projection")
    smooth = look(runtime, camera, scene="smooth").astype(int)
    should = np.stack([projected(camera, view) for view in (0, 1)]).astype(int)
    off = float(np.quantile(np.abs(smooth - should), 0.99)) if smooth.shape == should.shape else math.inf
    if off > MOST_GREY:
        got = f"99% of pixels within {off:g}"
        yield found("wrong_picture", f"{where} is another projection", f"99% within {MOST_GREY} grey levels", got)


def projected(camera: Camera, view: int) -> Any:
    """The smooth moment as it should be seen, nearest pixel: 4 luma phases, U, V of half the model's size, (6, ...)."""
    import numpy as np

    frame, matrix = camera.picture(view, 0, scene="smooth"), camera.matrix(view, 0)
    columns, rows = camera.model_size[0] // 2, camera.model_size[1] // 2
    uv_start = camera.stride * camera.y_rows

    def plane(right: int, down: int, scale: int, start: int, step: int) -> Any:
        y, x = np.mgrid[0:rows, 0:columns] * 2 + np.array([down, right]).reshape(2, 1, 1)
        sx, sy, depth = np.einsum("ij,jrc->irc", matrix.astype(np.float64), np.stack([x, y, np.ones_like(x)]))
        column = np.clip(np.rint(sx / depth / scale), 0, camera.size[0] // scale - 1).astype(int)
        row = np.clip(np.rint(sy / depth / scale), 0, camera.size[1] // scale - 1).astype(int)
        return frame[start + row * camera.stride + column * step]

    luma = [plane(right, down, 1, 0, 1) for right, down in ((0, 0), (0, 1), (1, 0), (1, 1))]
    return np.stack([*luma, plane(0, 0, 2, uv_start, 2), plane(0, 0, 2, uv_start + 1, 2)])


def check_policy(runtime: Runtime, camera: Camera) -> Iterator[Message]:
    """Same in same out, and whatever the runtime feeds counts."""
    import numpy as np

    plain, again = answer(runtime, camera), answer(runtime, camera)
    if not np.array_equal(plain, again, equal_nan=True):
        yield found("not_repeatable", "run_policy: same in, other out", "the same bits", gap(plain, again))
        return
    changes: dict[str, Message] = {
        "road picture": {"turns": (9, 0)},
        "wide picture": {"turns": (0, 9)},
        "desire": {"desire": np.eye(runtime.layout["desire"])[-1]},
        "prev_feat": {"prev_feat": np.random.default_rng(3).standard_normal(runtime.layout["prev_feat"])},
        "traffic_convention and action_t": {"traffic_convention": (0, 1), "action_t": (0.5, 0.1)},
    }
    for name, change in changes.items():
        if np.array_equal(plain, answer(runtime, camera, **change), equal_nan=True):
            yield indifferent(f"run_policy: another {name}")


def indifferent(what: str) -> Message:
    return found("indifferent", f"{what} changes nothing", "other in, other out", "the same bits")


def gap(one: Any, other: Any) -> str:
    import numpy as np

    if one.shape != other.shape:
        return f"shape {other.shape} for {one.shape}"
    off = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return f"{int(np.count_nonzero(off))} of {off.size} numbers differ, at most by {np.nanmax(off):.3g}"


def check_output(flat: Any, slices: dict[str, slice]) -> Iterator[Message]:
    """One frame's output: finite, then pose, deviations, angles and road transform within what can be."""
    import numpy as np

    bad = ~np.isfinite(flat)
    if bad.any():
        names = [name for name, part in slices.items() if bad[part].any()] or ["no slice"]
        got = f"{int(bad.sum())} NaN or infinite ones of {flat.size}, in {', '.join(names[:6])}"
        yield found("not_finite", "an output is not a number", "finite numbers", got)
        return
    for name in (name for name in ODOMETRY if name in slices):
        values = flat[slices[name]]
        means, log_stds = values[: values.size // 2], values[values.size // 2 :]
        # A slice holds means, then log deviations, unless the model gives NAME_stds itself.
        given = slices.get(f"{name}_stds")
        stds = flat[given] if given else np.exp(np.minimum(log_stds, 11))
        if not stds.size or stds.min() <= LEAST_STD:
            got = f"{stds.min():.3g}" if stds.size else "none"
            yield found("bad_odometry", f"{name}_stds", f"each above {LEAST_STD}", got)
        limits = {"pose": (MOST_SPEED, MOST_RATE), "road_transform": (MOST_HEIGHT, MOST_ANGLE)}.get(name)
        parts = zip((means[:3], means[3:6]), limits, strict=True) if limits else ((means, MOST_ANGLE),)
        for part, most in parts:
            if np.linalg.norm(part) > most:
                got = f"{np.linalg.norm(part):.3g}"
                yield found("bad_odometry", f"{name} is out of this world", f"a norm of at most {most:.4g}", got)


# --- the child: the drive --------------------------------------------------------------------------------------------


def drive(runtime: Runtime, options: argparse.Namespace, tell: Tell) -> None:
    """Feeds the frames at the rate. The cameras take turns of up to a second, so that all see the whole run."""
    import numpy as np

    runtime.reset()
    cameras = list(runtime.cameras)
    turn = max(1, min(round(options.rate), options.frames // (8 * len(cameras)) or 1))
    features = np.zeros(runtime.layout["prev_feat"], dtype=np.float32)
    pulses = np.eye(runtime.layout["desire"])
    period, last, still = 1 / options.rate, None, 0
    due = time.perf_counter()
    for number in range(options.frames):
        camera = cameras[number // turn % len(cameras)]
        runtime.pack(
            desire=pulses[number // 40 % len(pulses)] if number % 40 == 20 else 0,
            traffic_convention=(1, 0),
            action_t=(0.2, 0.3),
            prev_feat=features,
        )
        frames = runtime.on_device([camera.picture(view, number) for view in (0, 1)])
        matrices = [camera.matrix(view, number) for view in (0, 1)]
        time.sleep(max(0.0, due - time.perf_counter()))
        started = time.perf_counter()
        # A run that cannot keep up does not race to catch up: frames that are missed are missed.
        due = max(due, started) + period
        try:
            out = runtime.policy(runtime.warp(camera.name, matrices, frames))
        except Failure as failure:
            if failure.finding["code"] != "warp_failed" or len(cameras) == 1:
                raise
            report_failure(failure, tell)
            cameras.remove(camera)
            continue
        tell(frame_message(number, camera.name, started))
        for finding in check_output(out, runtime.slices):
            tell({"finding": finding | {"frame": number}})
        still = still + 1 if last is not None and np.array_equal(out, last) else 0
        if still == 2:
            tell({"finding": indifferent("the output stands still: another frame") | {"frame": number}})
        last, features = out, out[runtime.slices["hidden_state"]]


def run_child(options: argparse.Namespace, tell: Tell, use: Use) -> None:
    tell({"doing": "loading the artifact", "phase": "load"})
    try:
        file = options.artifact.open("rb")
    except OSError as error:
        raise Failure("no_artifact", "the artifact cannot be read", "a file", error.strerror or str(error)) from error
    with file:
        before = signature(os.fstat(file.fileno()))
        tell({"proof": {"before": before}})
        root = load(options, file, tell)
        from tinygrad import Device

        warp_device = os.environ.get("WARP_DEV") or Device.DEFAULT
        tell({"facts": {"backend": Device.DEFAULT, "warp_backend": warp_device, "python": sys.version.split()[0]}})
        try:
            use(root, options, tell)
        except Failure as failure:
            report_failure(failure, tell)
        check_unmoved(options, file, before, tell)


def use(root: Any, options: argparse.Namespace, tell: Tell) -> None:
    """Rehearsal, drive, rehearsal: the answers after the drive must be those from before it."""
    import numpy as np

    runtime = Runtime(root, options, tell)
    started = time.monotonic()
    before: dict[Camera, Any] = {}
    for camera in list(runtime.cameras):
        try:
            for finding in check_warp(runtime, camera):
                tell({"finding": finding})
            for finding in check_policy(runtime, camera) if not before else ():
                tell({"finding": finding})
            before[camera] = answer(runtime, camera)
        except Failure as failure:
            # The other cameras show whether it is this camera's warp alone.
            if failure.finding["code"] != "warp_failed":
                raise
            report_failure(failure, tell)
            runtime.cameras.remove(camera)
    tell({"facts": {"rehearsal_s": round(time.monotonic() - started, 3)}})
    if not runtime.cameras:
        return
    runtime.phase = "run"
    print(f"rehearsed on {', '.join(one.name for one in runtime.cameras)}; {options.frames} frames to go", flush=True)
    drive(runtime, options, tell)
    for camera in runtime.cameras:
        after = answer(runtime, camera)
        if not np.array_equal(before[camera], after, equal_nan=True):
            what = f"on camera {camera.name} it answers otherwise after the run"
            tell({"finding": found("not_repeatable", what, "the same bits", gap(before[camera], after))})


def report_failure(failure: Failure, tell: Tell) -> None:
    if failure.__cause__ is not None:
        traceback.print_exception(failure.__cause__)
    tell({"finding": failure.finding})


def child_main(options: argparse.Namespace, use: Use) -> int:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    pipe = os.fdopen(options.child, "w", buffering=1)

    def tell(message: Message) -> None:
        pipe.write(json.dumps(message) + "\n")

    try:
        run_child(options, tell, use)
    except Failure as failure:
        report_failure(failure, tell)
    except BrokenPipeError:
        return 1  # the watchdog is gone
    except Exception as error:  # noqa: BLE001 - the harness's own fault must not look like the artifact's
        traceback.print_exc()
        tell({"finding": found("broken", "the harness failed", "to run", said(error))})
    tell({"end": True})
    return 0


# --- command line ----------------------------------------------------------------------------------------------------


def main(arguments: list[str], options: argparse.Namespace, use: Use, script: str) -> int:
    """The exit status. script: this very program, which is started anew as the child."""
    if options.child is not None:
        return child_main(options, use)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    seen = watch(options, arguments, script)
    report = seen.report()
    write_report(options.report, report)
    for finding in report["findings"]:
        print(f"error: {finding['what']}: expected {finding['expected']}, got {finding['got']}", file=sys.stderr)
    if report["findings"]:
        return STATUS[report["verdict"]]
    numbers = report["numbers"]
    print(
        f"validated {options.artifact}: {numbers['frames']} frames, median {numbers['median_ms']:.1f} ms, "
        f"p99 {numbers['p99_ms']:.1f} ms, {numbers['late']} late",
        flush=True,
    )
    return 0


def stop(number: int, _frame: Any) -> NoReturn:
    raise Stopped(signal.Signals(number).name)


def parse(arguments: list[str], about: str | None = __doc__, roles: tuple[str, ...] = ()) -> argparse.Namespace:
    """The options. roles: that an artifact of one part may have."""

    def size(text: str) -> tuple[int, int]:
        width, _, height = text.lower().partition("x")
        if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
            raise argparse.ArgumentTypeError(f"expected WIDTHxHEIGHT, got {text!r}")
        return int(width), int(height)

    def positive(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e6:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
        return value

    def whole(text: str) -> int:
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
        return int(text)

    def digest(text: str) -> str:
        if len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
            raise argparse.ArgumentTypeError(f"expected 64 hex digits, got {text!r}")
        return text.lower()

    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--seconds", type=positive, help="so many seconds of frames")
    length.add_argument("--frames", type=whole)
    parser.add_argument("--rate", type=positive, default=20.0, help="frames a second")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--require-realtime", action="store_true", help="slower than the rate is a refusal")
    parser.add_argument("--sha256", type=digest, help="of the artifact that shall be tested")
    parser.add_argument("--cameras", type=size, nargs="+", help="that must be there; all in the artifact by default")
    parser.add_argument("--frame-skip", type=whole, help="the runtime's; the artifact's own by default")
    if roles:
        parser.add_argument("--role", choices=roles, help="of an artifact that holds one part only")
    parser.add_argument("--stall-limit", type=positive, default=10.0, help="seconds of silence while it runs")
    parser.add_argument("--load-limit", type=positive, default=120.0, help="seconds of silence until it runs")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.frames = options.frames or max(1, round(options.seconds * options.rate))
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], parse(sys.argv[1:]), use, __file__))
