"""Bugs in the pools of KV. Spec: `spec/pools_states_sizing.md` §7 to §13, `spec/core.md` §7, §8."""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

POOLS = "kv_pools"
TORCH = "kernels.kv_rows"
KERNELS = "kernels.device.kv_rows"
BASE = "storage.base:KVCache"
DOOR = "storage.door"
MHA = "storage.mha:MHATokenToKVPool"
DSA = "storage.dsa:DSATokenToKVPool"
SWA = "storage.swa_kv:SWAKVPool"
HYBRID = "storage.hybrid_linear"
OF_MHA = {"family": (0,)}
OF_DSA = {"family": (3,), "layers": (2, 3)}
OF_SWA = {"family": (6,)}
FP8 = {"family": (0, 1, 2), "stored": (3, 4, 5)}

BUGS = (
    Bug("padded lanes write to the reserved page", POOLS, "I56", edit(
        f"{DOOR}:Door._store_looked_over", "if least >= self.first and most < self.end:",
        "if least >= 0 and most < self.end:",
    ), entry=57),
    Bug("padded lanes' values are moved into the reserved page", POOLS, "I56", edit(
        f"{TORCH}:put", "words = words.masked_fill(~live[:, None], 0)", "pass",
    ), entry=57),
    Bug("slots beyond the pool are written to in silence", POOLS, "I4", edit(
        f"{DOOR}:Door._store_looked_over", "most >= self.end and self.validate", "False",
    ), entry=58),
    Bug("a layer is found from the end", POOLS, "I4", edit(
        f"{BASE}._local", "if not self.start_layer <= layer < self.end_layer:",
        "if not layer < self.end_layer:",
    )),
    Bug("a move is one slot after another", POOLS, "I58", edit(
        f"{TORCH}:move", "buffer.scatter(target, buffer.gather(source))",
        "for at in range(target.shape[0]):\n"
        "            buffer.scatter(target[at : at + 1], buffer.gather(source[at : at + 1]))",
    )),
    Bug("a move forgets the values", POOLS, "I58", edit(
        f"{BASE}.move_kv_cache", "self.buffers", "self.buffers[: self.layer_num]",
    ), limits=OF_MHA),
    Bug("a move leaves index scales behind", POOLS, "I58", edit(
        f"{BASE}.move_kv_cache", "self.buffers",
        "[each for each in self.buffers if each.name != 'index_scale']",
    ), limits=OF_DSA),
    Bug("a target may be moved to twice", POOLS, "I4", edit(
        f"{DOOR}:faults_of", "if first_at.setdefault(write, at) < at:", "if False:",
    )),
    Bug("a round trip forgets a layer", POOLS, "I38", edit(
        f"{BASE}._restore", "zip(self._by_layer(), copy, strict=True)",
        "list(zip(self._by_layer(), copy, strict=True))[: max(1, self.layer_num - 1)]",
    ), limits={"layers": (2, 3), "family": (0, 1, 2)}),
    Bug("a round trip brings index keys back without scales", POOLS, "I38", edit(
        f"{BASE}._restore", "buffer.scatter(chunk, words.to(self.device))",
        "if buffer.name != 'index_scale':\n"
        "                        buffer.scatter(chunk, words.to(self.device))",
    ), limits=OF_DSA),
    Bug("fp8 isn't clamped to its range", POOLS, "I57", edit(
        f"{TORCH}:encoded", "values = values.clamp(-most, most)", "pass",
    ), limits={**FP8, "stored": (4, 5)}),
    Bug("values are scaled the wrong way", POOLS, "I57", edit(
        f"{TORCH}:encoded", "values.to(torch.float32) / one(", "values.to(torch.float32) * one(",
    )),
    Bug("a quotient isn't rounded to the values' type", POOLS, "I57", edit(
        f"{TORCH}:encoded", "one(scale, values.device)).to(values.dtype)",
        "one(scale, values.device))",
    ), limits=FP8),
    Bug("keys are scaled as values are", POOLS, "I57", edit(
        f"{MHA}._store", "cache_k, self.dtype, k_scale", "cache_k, self.dtype, v_scale",
    ), limits=OF_MHA),
    Bug("the prefix that is committed is one too long", POOLS, "I57", edit(
        f"{DOOR}:Door.store", "columns < limits[:, None]", "columns <= limits[:, None]",
    ), also=("I11",), limits=OF_MHA),
    Bug("marks of slots aren't asked for", POOLS, "I4", edit(
        f"{BASE}._target", "if self.requires_physical_write_loc and not", "if False and not",
    ), limits={"marked": (True,)}),
    Bug("a companion may be shorter", POOLS, "I4", edit(
        "storage.write_loc:KVWriteLoc.__post_init__", "ids.shape[0] < self.loc.shape[0]", "False",
    ), False, limits=OF_SWA),
    Bug("a window layer writes to full slots", POOLS, "I57", edit(
        f"{SWA}._loc_for", "return KVWriteLoc(swa_loc, physical=True) if physical else swa_loc",
        "return full_loc_of(loc_info)",
    ), limits=OF_SWA),
    Bug("a composite loses the mark", POOLS, "I57", edit(
        f"{HYBRID}:full_loc_of",
        "return KVWriteLoc(target, physical=True) if physical else target", "return target",
    ), also=("I11",), limits={"family": (5, 6), "marked": (True,)}),
    Bug("a window comes back where there was none", POOLS, "I38", edit(
        f"{SWA}.load_cpu_copy", "back = windows > 0", "back = windows >= 0",
    ), also=("I56", "I11"), limits=OF_SWA),
    Bug("padding moves the windows of the last slots", POOLS, "I58", edit(
        "storage.swa_kv:_windows", "mapping[slots.where(inside, 0)]", "mapping[slots]",
    ), also=("I1",), limits={**OF_SWA, "tame": (False,)}),
    Bug("a reader doesn't wait for its layer", POOLS, "I57", edit(
        f"{BASE}._arrived", "self.layer_transfer_gate.wait_until(local)", "pass",
    ), limits={"family": (0, 1, 2, 3)}),
    Bug("a reader waits for a layer's global number", POOLS, "I57", edit(
        f"{BASE}._arrived", "wait_until(local)", "wait_until(layer_id)",
    ), limits={"family": (0, 1, 2), "start": (1, 3)}),
    Bug("the reserved page isn't counted", POOLS, "I61", edit(
        f"{BASE}._bytes_of", "each.rows.nbytes",
        "each.rows.nbytes - each.row_bytes * self.page_size",
    )),
    Bug("rotary parts are stored over latents", POOLS, "I57", edit(
        "storage.mla:MLATokenToKVPool._store_parts", "offset=offset", "offset=0",
    ), limits={"family": (2, 3)}),
    Bug("index scales lie between their keys", POOLS, "I57", edit(
        f"{DSA}._add_index_buffers", "by_slot(pages[:, begin:end], self.page_size),",
        "by_slot(pages, self.page_size)[:, :, :128 if begin == 0 else None]"
        "[:, :, 0 if begin == 0 else 128:],",
    ), limits={**OF_DSA, "page_size": (2, 3, 4)}),
)  # fmt: skip

SLOW = (
    Bug("padded lanes write to the reserved page", POOLS, "I56", edit(
        f"{KERNELS}:store_rows", "(slot >= first) & (slot < end)\n        to =",
        "(slot >= 0) & (slot < end)\n        to =",
    ), limits={"family": (0, 1, 2)}),
    Bug("a row is written before all are read", POOLS, "I58", edit(
        f"{KERNELS}:move_slots", "_places(line, tl.where(live, read, 0), columns, words)",
        "_places(line, tl.where(live, write, 0), columns, words)",
    ), limits={"family": (0, 1, 2)}),
    Bug("ties are rounded up", POOLS, "I57", edit(
        f"{KERNELS}:_to_fp8", "((1 << (dropped - 1)) - 1) + ((size >> dropped) & 1)",
        "(1 << (dropped - 1))",
    ), limits={"family": (0,), "stored": (3, 4, 5)}),
    Bug("the last columns of wide rows aren't written", POOLS, "I57", edit(
        f"{KERNELS}:store_rows", "(at < a_width)[None, :]", "(at < a_width - 1)[None, :]",
    ), limits={"family": (0, 1), "dim": (2, 3, 4)}),
)  # fmt: skip
