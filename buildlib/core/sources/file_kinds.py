"""What a file is by its first bytes, where it should have been an ONNX."""

from __future__ import annotations

from buildlib.core.sources.lfs_pointer import looks_like_pointer, parse_pointer

_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "a gzip archive", "unpack it and name the .onnx inside"),
    (b"PK\x03\x04", "a zip archive", "unpack it and name the .onnx inside"),
    (b"\x80\x02", "a pickle, perhaps an artifact", "name the ONNX that it was compiled from"),
    (b"\x80\x03", "a pickle, perhaps an artifact", "name the ONNX that it was compiled from"),
    (b"\x80\x04", "a pickle, perhaps an artifact", "name the ONNX that it was compiled from"),
    (b"\x80\x05", "a pickle, perhaps an artifact", "name the ONNX that it was compiled from"),
    (b"%PDF", "a PDF", "name the .onnx"),
    (b"\x7fELF", "a program", "name the .onnx"),
    (b"\x89HDF", "an HDF5 file", "export the model as ONNX"),
    (b"GGUF", "a GGUF file", "export the model as ONNX"),
)


def what_else(start: bytes) -> tuple[str, str] | None:
    """What a file that starts so is instead of an ONNX, and what to do: ("an HTML page", "..."). None: unknown."""
    if looks_like_pointer(start):
        pointer = parse_pointer(start)
        size = f" to {pointer.size} bytes" if pointer else ""
        return (
            f"a git-lfs pointer{size}, not the file itself",
            "git lfs pull in its repository, or a source of kind git, which resolves pointers",
        )
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml", b"<error", b"<body")):
        return (
            "an HTML or XML page, as a server sends for an error or a login",
            "open the address in a browser and take the link of the file itself",
        )
    for magic, name, remedy in _OTHERS:
        if start.startswith(magic):
            return name, remedy
    if text.startswith((b"{", b"[")) and _is_text(start):
        return "JSON, as a server sends for an error", "look into it: it may say why the server refused"
    if text.startswith(b"ir_version:"):
        return "an ONNX as text", "save it in binary form"
    if start and _is_text(start):
        return "a text file", "name the .onnx itself"
    return None


def _is_text(start: bytes) -> bool:
    if any(byte < 0x20 and byte not in b"\t\r\n" for byte in start):
        return False
    try:
        start.decode()
    except UnicodeDecodeError as error:
        # The last letter may be cut by the end of what was read.
        return error.start >= len(start) - 3 and error.start > 0
    return True
