"""Runs in a process of its own, under the tinygrad of that interpreter: makes small captured jits of the real forms.

    python make_jits.py SPEC.json

SPEC is a JSON list of objects with `out` (path) and `form`: "supercombo" (run_policy and a jit a camera), "run_model"
(stock), "compile3" (a bare jit). Optional: `out_of_band`, `frame_skip`, `cameras`, `style` ("keyword", "positional"),
`zero` (weights of zeros), `frames` (bytes by "1344x760"), `dtype` of feat_q, `model` [w, h].
The kernels are simpler than a real model's; names, shapes, dtypes, devices and the pickle's structure are the real
ones (facts, section 1).
"""

import json
import pickle
import struct
import sys

import numpy as np
from tinygrad import Device, Tensor, TinyJit

CAMERAS = [[1344, 760], [1928, 1208]]


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


def make_policy(spec):
    """(run_policy, its queues): a policy of two small layers over all its inputs."""
    skip, (width, height) = spec["frame_skip"], spec["model"]
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((1024 * 6, 64)).astype(np.float16)
    ends = rng.standard_normal((64, 96)).astype(np.float16)
    if spec.get("zero"):
        weights[:], ends[:] = 0, 0
    w = Tensor(weights, device=Device.DEFAULT).contiguous().realize()
    head = Tensor(ends, device=Device.DEFAULT).contiguous().realize()

    def run_policy(warped, img_q, big_img_q, feat_q, desire_q, packed_npy_inputs):
        img_q.assign(img_q[1:].cat(warped[0:1])).realize()
        big_img_q.assign(big_img_q[1:].cat(warped[1:2])).realize()
        packed = packed_npy_inputs.to(Device.DEFAULT)
        image = (img_q[-1:].cast("float") + big_img_q[-1:].cast("float")).reshape(-1)[: 1024 * 6].reshape(1, -1)
        extra = packed.sum() + feat_q.cast("float").sum() + desire_q.sum()
        hidden = (image.cast("half") @ w).relu() + extra.cast("half")
        return ((hidden @ head).cast("float").contiguous(),)

    def queues():
        return {
            "img_q": on_device((skip + 1, 6, height // 2, width // 2), np.uint8),
            "big_img_q": on_device((skip + 1, 6, height // 2, width // 2), np.uint8),
            "feat_q": on_device((skip * 24, 1, 512), spec.get("dtype", np.float32)),
            "desire_q": on_device((skip * 25, 1, 8), np.float32),
        }

    return run_policy, queues


def policy(spec):
    run_policy, queues = make_policy(spec)
    width, height = spec["model"]

    def inputs():
        warped = on_device((2, 6, height // 2, width // 2), np.uint8)
        return {"warped": warped, **queues(), "packed_npy_inputs": npy((8 + 2 + 2 + 512,))}

    return capture(run_policy, inputs, spec.get("style", "keyword"))


def run_model(spec, camera):
    """Stock's single jit: transforms, policy inputs and both frames arrive in one vector of bytes."""
    run_policy, queues = make_policy(spec)
    floats = 18 + 8 + 2 + 2 + 512
    stride, rows = align(camera[0], 128), align(camera[1], 32)
    planes = stride * (rows + align(camera[1] // 2, 16))

    def run(img_q, big_img_q, feat_q, desire_q, packed_npy_inputs):
        packed = packed_npy_inputs.to(Device.DEFAULT)
        frames = packed[4 * floats : 4 * floats + 2 * 6 * 128 * 256].reshape(2, 6, 128, 256).contiguous()
        return run_policy(frames, img_q, big_img_q, feat_q, desire_q, packed[: 4 * floats].bitcast("float32"))

    def inputs():
        packed = np.ones(4 * floats + 2 * planes, dtype=np.uint8)
        return {**queues(), "packed_npy_inputs": Tensor(packed, device="NPY").realize()}

    return capture(run, inputs, "keyword")


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
    spec = {"frame_skip": 4, "cameras": CAMERAS, "model": [512, 256]} | spec
    cameras = [tuple(camera) for camera in spec["cameras"]]
    if spec["form"] == "supercombo":
        root = {"metadata": metadata(), "frame_skip": spec["frame_skip"], "run_policy": policy(spec)}
        return root | {camera: warp(spec, camera) for camera in cameras}
    if spec["form"] == "run_model":
        jits = {camera: run_model(spec, camera) for camera in cameras}
        return {"metadata": metadata(), "input_devices": {"model": Device.DEFAULT}, "run_model": jits}
    return policy(spec)


def dump_out_of_band(root, path):
    buffers = []
    opcodes = pickle.dumps(root, protocol=5, buffer_callback=buffers.append)
    with open(path, "wb") as file:
        file.write(struct.pack("<q", len(opcodes)) + opcodes)
        for buffer in buffers:
            file.write(struct.pack("<q", buffer.raw().nbytes))
            file.write(buffer.raw())


with open(sys.argv[1]) as specs:
    for one in json.load(specs):
        made = build(one)
        if one.get("out_of_band"):
            dump_out_of_band(made, one["out"])
        else:
            with open(one["out"], "wb") as out:
                pickle.dump(made, out)
