"""What the watchdog knows of a run, its numbers, and the report."""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

from .findings import STATUS, Message, found, name_of

FORMAT = 1
# Growth after warming up (`growth`) that no allocator's noise explains, in bytes.
LEAK_OF_PROCESS, LEAK_OF_DEVICE = 6 << 20, 256 << 10
MOST_LATE = 0.01
MOST_FINDINGS = 40


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


def mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def write_report(path: Path, report: Message) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        json.dump(report, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
