"""Bugs of an engine, where rows, allocator, pool and host tier meet; `impl` is as it should be.

Spec: `spec/core.md` §2, §7; `spec/interleave_hisparse_host_prefix.md` §4, §5.
"""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

ENGINE = "engine"
OF = "properties.subjects.engine:Engine"
PARTS = "properties.subjects.engine_tensors:EngineSubject"
FIXED = "properties.subjects.engine_graph:FixedStore"
# A small engine shows each, and is soon minimised.
LITTLE = {
    "family": (0,), "stored": (1,), "layers": (1,), "heads": (1,), "dim": (2,),
    "page_size": (1, 2), "pages": (2, 3, 4), "width": (3, 4), "host_pages": (0, 2, 4),
    "by_rows": (False,),
}  # fmt: skip
HOSTED = {**LITTLE, "host_pages": (2, 4)}

BUGS = (
    Bug("a late write goes by a row that is another's", ENGINE, "I28", edit(
        f"{OF}.flush", " if self.parts.is_current(each.handle)", "",
    ), entry=2, limits={**LITTLE, "rows": (1, 2)}),
    Bug("a prefix hit copies what isn't written yet", ENGINE, "I60", edit(
        f"{OF}.hit", "min(tokens, self._written(like))", "tokens",
    ), entry=61, limits=LITTLE),
    Bug("pages go back while a transfer writes to them", ENGINE, "I65", edit(
        f"{OF}.abort", "if self.parts.in_transfer(slots):", "if False:",
    ), entry=65, limits=HOSTED),
    Bug("a flush of everything forgets the host tier", ENGINE, "I66", edit(
        f"{PARTS}.clear", "self.host.slots.clear()", "pass",
    ), entry=56, limits=HOSTED),
    Bug("padded lanes aim at a live row", ENGINE, "I57", edit(
        f"{OF}._write", "lanes + [NOWHERE] * padded", "lanes + lanes[:1] * padded",
    ), limits=LITTLE),
    Bug("a chunk is computed for positions that are one too far", ENGINE, "I57", edit(
        f"{OF}.prefill", "self._compute(request, start, slots)",
        "self._compute(request, start + 1, slots)",
    ), limits=LITTLE),
    Bug("a chunk's slots begin one too early in the row", ENGINE, "I41", edit(
        f"{OF}._grow", "of.length, slots)", "max(0, of.length - 1), slots)",
    ), limits=LITTLE),
    Bug("slots of a batch go to the wrong requests", ENGINE, "I41", edit(
        f"{OF}.decode", "for of, slot in zip(batch, slots, strict=True)",
        "for of, slot in zip(batch, slots[::-1], strict=True)",
    ), limits=LITTLE),
    Bug("a resume reads the host in reverse", ENGINE, "I38", edit(
        f"{OF}.begin_resume", "begin_load(host[: len(slots)], slots)",
        "begin_load(host[: len(slots)], slots[::-1])",
    ), limits=HOSTED),
    Bug("a backup is taken before the last write", ENGINE, "I38", edit(
        f"{OF}.retract_to_host", "self._write_late(of)", "pass",
        "self.saved[request] =", "self._write_late(of)\n        self.saved[request] =",
    ), limits=HOSTED),
    Bug("a retraction gives pages back before they are copied", ENGINE, "I38", edit(
        f"{OF}.retract_to_host", "self.parts.backup(",
        "self._release([request])\n        self.parts.backup(",
        "None, host)\n        self._release([request])", "None, host)",
    ), limits=HOSTED),
    Bug("a resumed request keeps its host slots", ENGINE, "I31", edit(
        f"{OF}.load_layer", "self.parts.free_host(load.host)", "pass",
    ), limits=HOSTED),
    Bug("an abort of a retracted request forgets its host slots", ENGINE, "I31", edit(
        f"{OF}.abort", "self.parts.free_host(host)", "pass",
    ), limits=HOSTED),
    Bug("an abort under a transfer forgets the row", ENGINE, "I31", edit(
        f"{OF}.abort", "self.parts.give_row(self.running.pop(request))",
        "self.running.pop(request)",
    ), limits=HOSTED),
    Bug("a row's last token is forgotten at its end", ENGINE, "I2", edit(
        f"{OF}._release", "free_row_of(of.handle, of.length)",
        "free_row_of(of.handle, of.length - 1)",
    ), limits={**LITTLE, "by_rows": (True,)}),
    Bug("pages of an aborted request are never drained", ENGINE, "I2", edit(
        f"{OF}.drain", "self._give(slots)", "pass",
    ), limits=HOSTED),
    Bug("a replay writes the values of the one before", ENGINE, "I57", edit(
        f"{FIXED}.__call__", "self._values.copy_(values)",
        "self._values[:, :, :-1].copy_(values[:, :, 1:])",
    ), limits={**LITTLE, "captured": (True,)}),
    Bug("a replay aims at the lanes of the one before", ENGINE, "I60", edit(
        f"{FIXED}.__call__", "self._lanes.copy_(lanes)\n",
        "before = self._lanes.clone()\n    self._lanes.copy_(lanes)\n",
        "self._run()", "self._store(*before, self._values)",
    ), also=("I57", "I28"), limits={**LITTLE, "captured": (True,)}),
)  # fmt: skip
