"""The device agent's sources in the form in which they travel: compressed, behind a bootstrap of a few lines."""

from __future__ import annotations

import functools
import json
import zlib
from pathlib import Path

PACKAGE = "agent"
SOURCES = Path(__file__).parent.parent / "device_scripts" / "agent"

BOOT = """
import sys,json,zlib
from importlib.machinery import ModuleSpec
i=sys.stdin.buffer
z=i.read(int(i.readline()))
s=json.loads(zlib.decompress(z))
class F:
 def find_spec(self,n,p=None,t=None):
  if n in s:return ModuleSpec(n,self,is_package=n=="agent")
 def create_module(self,m):return None
 def exec_module(self,m):exec(compile(s[m.__name__],"<"+m.__name__+">","exec",dont_inherit=True),m.__dict__)
sys.meta_path.insert(0,F())
import agent
agent.BUNDLE=z
agent.BOOT=s["boot"]
from agent.main import main
sys.exit(main())
""".strip()
"""Read by `python -c`: takes a length line and the sources off standard input, and imports them from memory."""


@functools.cache
def framed_sources() -> bytes:
    """A line with a length, then the compressed sources. The request line follows it."""
    sources = {"boot": BOOT}
    for file in sorted(SOURCES.glob("*.py")):
        name = PACKAGE if file.stem == "__init__" else f"{PACKAGE}.{file.stem}"
        sources[name] = file.read_text(encoding="utf-8")
    packed = zlib.compress(json.dumps(sources).encode(), 6)
    return b"%d\n" % len(packed) + packed
