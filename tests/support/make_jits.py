"""Runs in a process of its own, under the tinygrad of that interpreter: makes small captured jits of the real forms.

    python make_jits.py SPEC.json

SPEC is a JSON list of {"out": path, "form": ..., "frame_skip": n, "cameras": [[w, h], ...], "style": "keyword" or
"positional", "width": n, "zero": true for weights of zeros, "frames": {"1344x760": bytes}}. Forms: "iqpilot" (run_policy and one jit a
camera), "run_model", "compile3" (a bare jit), "oob" (iqpilot, out of band). The kernels are simpler than a real
model's; names, shapes, dtypes, devices and the pickle's structure are the real ones (facts, section 1).
"""

import json
import pickle
import struct
import sys

import numpy as np
from tinygrad import Device, Tensor, TinyJit

POLICY = ("warped", "img_q", "big_img_q", "feat_q", "desire_q", "packed_npy_inputs")


def align(n, to):
    return (n + to - 1) // to * to


def frame_bytes(width, height):
    stride, rows = align(width, 128), align(height, 32)
    uv = align(align(height, 2) // 2, 16)
    return align(stride * (rows + uv) + 4096 + max(16384, 8 * stride), 4096) + align(align(width, 512) * 512, 4096)


def on_device(shape, dtype):
    rng = np.random.default_rng(7)
    return Tensor(rng.integers(0, 9, shape).astype(dtype), device=Device.DEFAULT).contiguous().realize()


def npy(shape):
    return Tensor(np.ones(shape, dtype=np.float32), device="NPY")


def capture(fn, make_inputs, style):
    jit = TinyJit(fn, prune=True)
    for _ in range(3):
        inputs = make_inputs()
        out = jit(**inputs) if style == "keyword" else jit(*inputs.values())
        for tensor in out if isinstance(out, tuple) else (out,):
            tensor.numpy()
    return jit


def policy(spec):
    fs, width = spec["frame_skip"], spec.get("width", 64)
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((1024 * 6, width)).astype(np.float16)
    if spec.get("zero"):
        weights[:] = 0
    w = Tensor(weights, device=Device.DEFAULT).contiguous().realize()
    head = Tensor(rng.standard_normal((width, 96)).astype(np.float16), device=Device.DEFAULT).contiguous().realize()

    def run_policy(warped, img_q, big_img_q, feat_q, desire_q, packed_npy_inputs):
        img_q.assign(img_q[1:].cat(warped[0:1])).realize()
        big_img_q.assign(big_img_q[1:].cat(warped[1:2])).realize()
        packed = packed_npy_inputs.to(Device.DEFAULT)
        x = img_q[-1:].cast("float").reshape(1, 6, 128 * 256)[:, :, ::32].reshape(1, -1)
        y = big_img_q[-1:].cast("float").reshape(1, 6, 128 * 256)[:, :, ::32].reshape(1, -1)
        h = (
            ((x + y).cast("half") @ w).relu()
            + packed.sum().cast("half")
            + feat_q.sum().cast("half")
            + desire_q.sum().cast("half")
        )
        return ((h @ head).cast("float").contiguous(),)

    def inputs():
        return {
            "warped": on_device((2, 6, 128, 256), np.uint8),
            "img_q": on_device((fs + 1, 6, 128, 256), np.uint8),
            "big_img_q": on_device((fs + 1, 6, 128, 256), np.uint8),
            "feat_q": on_device((fs * 24, 1, 512), np.float32),
            "desire_q": on_device((fs * 25, 1, 8), np.float32),
            "packed_npy_inputs": npy((8 + 2 + 2 + 512,)),
        }

    return capture(run_policy, inputs, spec.get("style", "keyword"))


def warp(spec, camera):
    size = spec.get("frames", {}).get(f"{camera[0]}x{camera[1]}") or frame_bytes(*camera)

    def run_warp(tfm, big_tfm, frame, big_frame):
        road = frame[: 6 * 128 * 256].cast("float") * tfm.to(Device.DEFAULT)[0, 0]
        wide = big_frame[: 6 * 128 * 256].cast("float") * big_tfm.to(Device.DEFAULT)[0, 0]
        return road.cat(wide).cast("uint8").reshape(2, 6, 128, 256).contiguous()

    def inputs():
        return {
            "tfm": npy((3, 3)),
            "big_tfm": npy((3, 3)),
            "frame": on_device((size,), np.uint8),
            "big_frame": on_device((size,), np.uint8),
        }

    return capture(run_warp, inputs, spec.get("style", "keyword"))


def metadata():
    return {
        "model_checkpoint": "synthetic/0",
        "output_slices": {"plan": slice(0, 64), "hidden_state": slice(64, 96), "pose": slice(0, 12)},
        "input_shapes": {
            "img": (1, 12, 128, 256), "big_img": (1, 12, 128, 256), "features_buffer": (1, 24, 512),
            "desire_pulse": (1, 25, 8), "traffic_convention": (1, 2), "action_t": (1, 2),
        },
        "scale": np.float32(0.5),
    }  # fmt: skip


def build(spec):
    form, cameras = spec["form"], [tuple(c) for c in spec.get("cameras", [])]
    if form in ("iqpilot", "oob"):
        root = {"metadata": metadata(), "frame_skip": spec["frame_skip"], "run_policy": policy(spec)}
        for camera in cameras:
            root[camera] = warp(spec, camera)
        return root
    if form == "run_model":
        return {
            "run_model": {camera: warp(spec, camera) for camera in cameras},
            "metadata": {"model": metadata()},
            "input_devices": {"model": Device.DEFAULT, "warp": Device.DEFAULT},
        }
    return policy(spec)


def dump_oob(root, path):
    buffers = []
    opcodes = pickle.dumps(root, protocol=5, buffer_callback=buffers.append)
    with open(path, "wb") as f:
        f.write(struct.pack("<q", len(opcodes)) + opcodes)
        for buffer in buffers:
            raw = buffer.raw()
            f.write(struct.pack("<q", raw.nbytes))
            f.write(raw)


for one in json.load(open(sys.argv[1])):
    root = build(one)
    if one["form"] == "oob":
        dump_oob(root, one["out"])
    else:
        with open(one["out"], "wb") as f:
            pickle.dump(root, f)
