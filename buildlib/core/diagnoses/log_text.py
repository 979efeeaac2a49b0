"""Logs as lines and errors: terminal codes removed, tracebacks and error lines found. Pure, linear in size."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from buildlib.plain_text import plain

_START: Final = "Traceback (most recent call last):"
_CHAIN: Final = re.compile(r"^(During handling of the above exception|The above exception was the direct cause|\s*$)")
_EXCEPTION: Final = re.compile(
    r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Iteration|Fault|Failure|Timeout)(?=:|\s*$)"
)
_ERROR: Final = re.compile(
    r"^(\S{1,60}: )?(fatal|fatal error|error|panic|ERROR|FATAL|CRITICAL)\b[:\s]"
    r"|Segmentation fault|core dumped|^Killed$|^Aborted"
)
_LONGEST_LINE: Final = 20_000


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it stands in the log.

    first, last: line numbers from 0, both included. error: that of the (last) exception itself.
    quoted: numbers of lines that only quote source code: no signs.
    """

    first: int
    last: int
    error: int
    text: str
    quoted: tuple[int, ...] = ()


def clean_lines(text: str) -> list[str]:
    """Lines without terminal codes; of a line that was overwritten (progress bars) only the last state."""
    found = []
    for line in text.split("\n"):
        kept = line.rstrip("\r").rpartition("\r")[2]
        found.append(plain(kept[:_LONGEST_LINE]))
    return found


def error_blocks(lines: list[str]) -> list[Block]:
    """Tracebacks (chained ones as one) and error lines, in order."""
    found: list[Block] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        at = line.find(_START)
        if at >= 0:
            quoted: list[int] = []
            error, last = _end_of_traceback(lines, number, line[:at], quoted)
            found.append(_block(lines, number, last, error, tuple(quoted)))
            number = last + 1
            continue
        if _ERROR.search(line) or _EXCEPTION.match(line):
            found.append(_block(lines, number, number, number))
        number += 1
    return found


def _block(lines: list[str], first: int, last: int, error: int, quoted: tuple[int, ...] = ()) -> Block:
    return Block(first=first, last=last, error=error, text="\n".join(lines[first : last + 1]), quoted=quoted)


def _end_of_traceback(lines: list[str], first: int, prefix: str, quoted: list[int]) -> tuple[int, int]:
    """(exception, last line) of a traceback with the exception's indented continuation and all chained ones."""
    number = first
    while True:
        number += 1
        while number < len(lines) and _bare(lines[number], prefix).startswith((" ", "\t")):
            quoted.append(number)
            number += 1
        # The exception's own line, then lines of its message that are indented or close a bracket.
        error = last = min(number, len(lines) - 1)
        number += 1
        while number < len(lines) and _bare(lines[number], prefix).startswith((" ", "\t", ")", "]", "}")):
            last = number
            number += 1
        ahead = number
        while ahead < len(lines) and _CHAIN.match(_bare(lines[ahead], prefix)):
            ahead += 1
        if ahead == number or ahead >= len(lines) or _START not in lines[ahead]:
            return error, last
        number = ahead


def _bare(line: str, prefix: str) -> str:
    """A line without what a logger put before it."""
    return line.removeprefix(prefix) if prefix else line
