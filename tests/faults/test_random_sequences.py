"""Random sequences of changes, kills, damage and commands: the next `doit` ends right, a second one does nothing."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.faults.test_build_faults import UP_TO_DATE, alive, finish
from tests.support.projects import Project, add_device, until, variant

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LITTER = (".tmp", ".part", ".making")
POWER = ("cpu4/online", "cpu5/online", "cpufreq/policy0/scaling_governor")


class Sequence:
    """A project with two models and the devices `local` and `b`. Steps are drawn from `chance` and told in `told`."""

    def __init__(self, project: Project, onnx: bytes, seed: int) -> None:
        self.project, self.onnx, self.chance = project, onnx, random.Random(seed)
        self.told = [f"seed {seed}"]

    def model(self) -> str:
        return self.chance.choice(list(self.project.models))

    def words(self) -> list[str]:
        one = self.model()
        choices = [[], [], ["-n", "2"], [one], ["device=b"], [f"pull:{one}"], ["rebuild", one], ["gc", "--yes"]]
        return self.chance.choice(
            [*choices, ["rollback", one], ["forget"], ["reset-dep"], ["gc", "--device", "local", "--yes"]]
        )

    def run(self) -> None:
        words = self.words()
        self.told.append(f"doit {words}: {self.project.doit(*words).status}")

    def two_at_once(self) -> None:
        words = self.words(), self.words()
        runs = [self.project.start(*each) for each in words]
        self.told.append(f"at once {words}: {[finish(run)[0] for run in runs]}")

    def kill(self) -> None:
        words, number, seconds = self.words(), self.chance.choice(SIGNALS), self.chance.random() * 3
        run = self.project.start(*words)
        if number != signal.SIGKILL:  # before that the interpreter itself still loads doit
            until(lambda: (self.project.root / ".build/lock").exists())
            seconds += 0.5
        time.sleep(seconds)
        run.send_signal(number)
        self.told.append(f"{number.name} after {seconds:.2f} s of {words}: {finish(run)[0]}")

    def change_flag(self) -> None:
        one, flags = self.model(), self.chance.choice([{}, {"NOLOCALS": 1}])
        self.project.models[one]["flags"] = flags
        self.told.append(f"{one}: flags {flags}")

    def change_source(self) -> None:
        one, number = self.model(), self.chance.randrange(4)
        with (self.project.root / self.project.models[one]["source"]).open("r+b") as file:
            file.write(variant(self.onnx, number))
        self.told.append(f"{one}: ONNX {number}")

    def rename(self) -> None:
        old, models = self.model(), self.project.models
        declared = {**models.pop(old), "was": old}
        new = old.removesuffix("x") if old.endswith("x") else f"{old}x"
        if self.chance.random() < 0.3:
            del declared["was"]
        models[new] = declared
        self.told.append(f"{old} is {new} now, and {'says so' if 'was' in declared else 'does not say so'}")

    def rename_artifact(self) -> None:
        one = self.model()
        name = f"driving_supercombo_{one.removesuffix('x')}{self.chance.choice(['', '_new'])}.pkl"
        self.project.models[one]["artifact"] = name
        self.told.append(f"{one}: artifact {name}")

    def damage(self) -> None:
        project = self.project
        tops = [project.root / "artifacts", project.root / ".build", project.device() / "data/media"]
        top = self.chance.choice([*tops, project.device() / "data/supercombo-build"])
        files = sorted(path for path in top.rglob("*") if path.is_file() and not path.is_symlink())
        for path in self.chance.sample(files, min(len(files), self.chance.choice([1, 3]))):
            data = path.read_bytes()
            cut, kind = self.chance.randrange(len(data) + 1), self.chance.choice(["deleted", "cut", "flipped", "junk"])
            path.unlink()
            if kind != "deleted":
                flipped = data[:cut] + bytes(byte ^ 4 for byte in data[cut : cut + 1]) + data[cut + 1 :]
                path.write_bytes({"cut": data[:cut], "flipped": flipped, "junk": b"{}"}[kind])
            self.told.append(f"{path.relative_to(project.root.parent)}: {kind}")

    def lose(self) -> None:
        project, name = self.project, self.chance.choice(["../artifacts", "receipts", "blobs", "devices", "cache"])
        place = self.chance.choice([project.root / ".build" / name, project.device() / "data/media"])
        shutil.rmtree(place, ignore_errors=True)
        self.told.append(f"{place}: lost")

    def check(self) -> None:
        """What holds after any sequence."""
        project = self.project
        assert project.doit().status == 0
        calls = list(map(project.calls, project.devices))
        assert project.doit().ok().text == UP_TO_DATE
        assert list(map(project.calls, project.devices)) == calls
        project.assert_right()
        states = {stage["state"] for row in project.status().values() for stage in list(row.values())[:6]}
        assert states == {"fresh"}
        for device in project.devices.values():
            assert [(device / "sys/devices/system/cpu" / name).read_text() for name in POWER] == ["0", "0", "ondemand"]
        assert list((project.device() / "data/supercombo-build/journal").glob("*")) == []
        assert all(not alive(int(line.split()[1])) for line in (project.control() / "calls").read_text().splitlines())
        project.doit("gc", "--yes").ok()
        litter = [path for path in project.root.parent.rglob("*") if path.name.endswith(LITTER)]
        assert litter == []
        assert project.doit().ok().text == UP_TO_DATE, "gc takes nothing that is needed"


S = Sequence
CHANGES = [S.change_flag] * 3 + [S.change_source] * 3 + [S.rename] * 2 + [S.rename_artifact]
STEPS = [S.run] * 6 + [S.kill] * 6 + [S.two_at_once] + [S.damage] * 5 + [S.lose] * 2 + CHANGES


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))])
def test_after_any_sequence_the_next_build_ends_right(
    built: Project, sample_artifact: Path, sample_onnx: Path, seed: int
) -> None:
    add_device(built, "b", sample_artifact)
    for device in built.devices.values():
        for name in POWER:
            path = device / "sys/devices/system/cpu" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("ondemand" if name.endswith("governor") else "0")
    (built.control() / "calls").touch()
    sequence = Sequence(built, sample_onnx.read_bytes(), seed)
    built.declare()
    try:
        for step in sequence.chance.choices(STEPS, k=sequence.chance.randint(4, 10)):
            step(sequence)
            built.declare()
        sequence.check()
    except BaseException:
        print("\n".join(sequence.told))
        raise
