"""Bugs in the state pools. Spec: `spec/pools_states_sizing.md` §3, §5."""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

MAMBA = "states.mamba:MambaPool"
NGRAM = "states.ngram:NGramPool"
MOVES = "states.moves:Moves"
TORCH = "kernels.slot_moves"
KERNELS = "kernels.device.slot_moves"
POOLS = "state_pools"
#: configs in which siblings are there
BESIDE = {"short_conv": (1, 2), "ngram": (1, 3)}
OVERLAPPING = {
    "draft": (2, 3), "window": (2, 3), "convs": (1, 2), "tree": (False,), "order": (0,),
}  # fmt: skip

BUGS = (
    Bug("a clear leaves the siblings behind", POOLS, "I60", edit(
        f"{MAMBA}.clear_slots", "self._all_rows()", "self._rows",
    ), limits=BESIDE),
    Bug("a copy leaves the siblings behind", POOLS, "I58", edit(
        f"{MAMBA}.copy_from", "self._all_rows()", "self._rows",
    ), limits=BESIDE),
    Bug("a round trip leaves the siblings behind", POOLS, "I38", edit(
        f"{MAMBA}.load_cpu_copy", "sibling._restore(data, indices)", "pass",
    ), limits=BESIDE),
    Bug("a copy leaves one layer out", POOLS, "I58", edit(
        f"{TORCH}:move", "rows.index_copy_(1, target, rows.index_select(1, source))",
        "rows[:-1].index_copy_(1, target, rows[:-1].index_select(1, source))",
    )),
    Bug("a clear is of the wrong slots", POOLS, "I60", edit(
        f"{TORCH}:fill", "kept = (", "target = (target + 1) % rows.shape[1]\n    kept = (",
    ), also=("I56",)),
    Bug("a context is cleared to zeros", POOLS, "I60", edit(
        f"{NGRAM}.__init__", "rows_of(self.context, 0, self.eos_token_id)",
        "rows_of(self.context, 0)",
    ), limits=BESIDE),
    Bug("clear forgets the contexts", POOLS, "I66", edit(
        f"{NGRAM}.clear", "self.context.fill_(self.eos_token_id)", "pass",
    ), limits=BESIDE),
    Bug("all draft windows lie at the first step", POOLS, "I57", edit(
        "states.windows:DraftWindows.overlapping", "within[self.axis], *within", "0, *within",
    ), limits=OVERLAPPING),
    Bug("draft windows lie side by side in the long one", POOLS, "I57", edit(
        "states.windows:DraftWindows.__init__", "long[axis] += steps - 1", "long[axis] *= steps",
        "self.view = self.overlapping()",
        "self.view = self.storage.unflatten(2 + axis, (steps, -1)).movedim(2 + axis, 2)",
    ), limits=OVERLAPPING, also=("I61",)),
    Bug("contexts of a batch change places", POOLS, "I57", edit(
        f"{NGRAM}.set_context", "context.to(torch.int64)", "context.to(torch.int64).flip(0)",
    ), limits=BESIDE, also=("I56",)),
    Bug("a padded lane writes to slot 0", POOLS, "I56", edit(
        f"{TORCH}:move", "torch.where(target == keep, target, source)", "source",
    )),
    Bug("a context of a padded lane is written", POOLS, "I56", edit(
        f"{TORCH}:put", "torch.where(kept, part.index_select(1, target), packed)", "packed",
    ), limits=BESIDE),
    Bug("slots come back in reverse", POOLS, "I38", edit(
        "states.base:from_host", "indices.to(torch.int64)", "indices.to(torch.int64).flip(0)",
    )),
    Bug("a host copy of one slot is the pool's own memory", POOLS, "I54", edit(
        "states.base:to_host", "return tensor.index_select(axis, indices.to(torch.int64)).cpu()",
        "slot = int(indices[0]) if len(indices) else 0\n"
        "    return tensor.narrow(axis, slot, len(indices))",
    ), also=("I38", "I58", "I60", "I57")),
    Bug("nobody looks at the ids of a call", POOLS, "I4", edit(
        f"{MOVES}.require", "elif self.validate:", "elif False:",
    ), also=("I9",)),
    Bug("a copy may read what it writes", POOLS, "I4", edit(
        "states.moves:faults_of", "elif source is not None and read in first_at:", "elif False:",
    )),
    Bug("a state of another size is registered", POOLS, "I4", edit(
        f"{MAMBA}.register_slot_state", "if state.size != self.size:", "if False:",
    )),
    Bug("a payload is looked at while it is loaded", POOLS, "I9", edit(
        f"{MAMBA}.load_cpu_copy",
        "checks.raise_first(self._payload_faults(mamba_cache_cpu, len(slots)))",
        "faults = self._payload_faults(mamba_cache_cpu, len(slots))\n"
        "    if slots and len(mamba_cache_cpu) > 1:\n"
        "        self.mamba_cache.temporal[:, slots] = 250\n"
        "    checks.raise_first(faults)",
    ), limits={"temporal": (1, 2)}),
    Bug("the size counts every draft window", POOLS, "I61", edit(
        f"{MAMBA}._own_tensors", "w.storage for w", "w.view for w",
    ), limits=OVERLAPPING),
    Bug("a transfer forgets the siblings", POOLS, "I61", edit(
        f"{MAMBA}.iter_transfer_state_entries", "for sibling in self._siblings:",
        "for sibling in self._siblings[:0]:",
    ), limits=BESIDE),
)  # fmt: skip

#: those of the kernels, with small configs since the interpreter is slow
_TINY = {
    "size": (2, 3), "layers": (1, 2), "convs": (1,), "draft": (0,), "short_conv": (0,),
    "ngram": (0, 1), "narrow": (False,),
}  # fmt: skip
_LIFE = ("admit", "fork", "forward", "finish")
SLOW = (
    Bug("a fill sets one word less", POOLS, "I60", edit(
        f"{KERNELS}:fill_rows", "tl.where(go, num_words, 0)", "tl.where(go, num_words - 1, 0)",
    ), limits=_TINY, commands=_LIFE),
    Bug("a fill forgets the last layer", POOLS, "I60", edit(
        f"{KERNELS}:fill", "programs = layers * ", "programs = max(1, layers - 1) * ",
    ), limits=_TINY, commands=_LIFE),
    Bug("a move forgets the last layer", POOLS, "I58", edit(
        f"{KERNELS}:move", "programs = layers * ", "programs = max(1, layers - 1) * ",
    ), limits=_TINY, commands=_LIFE),
    Bug("a fill doesn't look at the record", POOLS, "I9", edit(
        f"{KERNELS}:fill_rows", "tl.load(record) == 0", "tl.load(record) >= 0",
    ), limits=_TINY, commands=(*_LIFE, "slot_twice")),
    Bug("a move doesn't look at the record", POOLS, "I9", edit(
        f"{KERNELS}:move_rows", "tl.load(record) == 0", "tl.load(record) >= 0",
    ), limits=_TINY, commands=(*_LIFE, "slot_twice")),
    Bug("a padded lane moves", POOLS, "I56", edit(
        f"{KERNELS}:move_rows", "(named != keep) & ", "",
    ), limits=_TINY, commands=_LIFE),
    Bug("a target may stand there twice", POOLS, "I4", edit(
        f"{KERNELS}:check_ids", "twice = other < i", "twice = other < 0",
            "tl.where(clash, CLASH, NO_FAULT)", "NO_FAULT",
    ), limits=_TINY, commands=(*_LIFE, "slot_twice")),
    Bug("claims of slots are left behind", POOLS, "I9", edit(
        f"{KERNELS}:check_ids",
        "tl.store(claim + _inside(write, last), NO_CLAIM, mask=write != keep)", "pass",
    ), limits=_TINY, commands=_LIFE),
)  # fmt: skip
