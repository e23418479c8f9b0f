"""Bugs in the request rows. Spec: `spec/core.md` §2."""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

ROWS = "rows:ReqToTokenPool"

BUGS = (
    Bug("zero rows asked, the whole list given", "rows", "I68", edit(
        f"{ROWS}.alloc_rows", "if count == 0:", "if False:",
    )),
    Bug("clear resets the generations", "rows", "I28", edit(
        f"{ROWS}.clear", "self._is_held =", "self.req_generation.zero_()\n    self._is_held =",
    )),
    Bug("a hand-out leaves the generation", "rows", "I28", edit(
        f"{ROWS}.alloc_rows", "self.req_generation[torch.tensor(rows)] += 1", "pass",
    )),
    Bug("a holder gets a second row", "rows", "I26", edit(
        f"{ROWS}.alloc", "if req.kv.req_pool_idx is None]\n", "]\n",
    ), also=("I11",)),
    Bug("a holder's row goes back between chunks", "rows", "I25", edit(
        f"{ROWS}.alloc", "rowless =",
        "for req in requests:\n"
        "        if req.kv.req_pool_idx is not None:\n"
        "            self._is_held[req.kv.req_pool_idx] = False\n"
        "            self.free_slots.insert(0, req.kv.req_pool_idx)\n"
        "            req.kv.req_pool_idx = None\n"
        "    rowless =",
    ), also=("I9", "I11", "I26", "I28", "I68"), entry=1),
    Bug("free leaves the row with the request", "rows", "I27", edit(
        f"{ROWS}.free", "req.kv.req_pool_idx = None", "pass",
    )),
    Bug("a hand-out in part when rows are short", "rows", "I8", edit(
        f"{ROWS}.alloc_rows", "return None", "count = len(self.free_slots)",
    )),
    Bug("rows are taken before they are counted", "rows", "I9", edit(
        f"{ROWS}.alloc_rows", "return None", "del self.free_slots[-count:]\n        return None",
    ), entry=81),
    Bug("requests get rows one by one until none is left", "rows", "I9", edit(
        f"{ROWS}.alloc", "if rows is None:",
        "if rows is None:\n"
        "        for req in rowless[:len(self.free_slots)]:\n"
        "            req.kv.req_pool_idx = self.free_slots[0]",
    )),
    Bug("the table has no line for the last row", "rows", "I29", edit(
        f"{ROWS}.__init__", "(self.size + 1, self.max", "(self.size, self.max",
    )),
    Bug("the generations end before the last row", "rows", "I29", edit(
        f"{ROWS}.__init__", "torch.zeros(self.size + 1,", "torch.zeros(self.size,",
    )),
    Bug("a row is one token short", "rows", "I30", edit(
        f"{ROWS}.__init__", "+ 1, self.max_context_len)", "+ 1, self.max_context_len - 1)",
    )),
    Bug("row 0 is handed out", "rows", "I3", edit(
        f"{ROWS}.clear", "range(1, self.size + 1)", "range(self.size)",
    )),
    Bug("rows are handed out and stay free", "rows", "I34", edit(
        f"{ROWS}.alloc_rows", "del self.free_slots[-count:]",
        "del self.free_slots[1 - count or self.size :]",
    )),
    Bug("rows come from the other end", "rows", "I71", edit(
        f"{ROWS}.alloc_rows", "self.free_slots[-count:]\n    del self.free_slots[-count:]",
        "self.free_slots[:count]\n    del self.free_slots[:count]",
    ), False),
    Bug("the whole row list is used up", "rows", "I11", edit(
        f"{ROWS}.alloc_rows", "if count > len(self.free_slots):",
        "if count >= len(self.free_slots) + (not count):",
    )),
    Bug("a stale handle may write", "rows", "I28", edit(
        f"{ROWS}.write", "if not self.is_current(handle):", "if False:",
    ), entry=2),
    Bug("a handle stays current after free", "rows", "I28", edit(
        f"{ROWS}.is_current", "and bool(self._is_held[row])", "",
    )),
    Bug("a handle is current for the next holder", "rows", "I28", edit(
        f"{ROWS}.is_current", "== generation", ">= generation",
    ), entry=2),
    Bug("a free row may be freed", "rows", "I4", edit(
        f"{ROWS}._row_fault", "if not self._is_held[row]:", "if False:",
    )),
    Bug("row 0 may be freed", "rows", "I4", edit(
        f"{ROWS}._row_fault", "if row == 0:", "if row == 0:\n        return None\n    if False:",
    )),
    Bug("a row may be named twice", "rows", "I4", edit(
        f"{ROWS}._free_faults", "if row in seen:", "if False:",
    )),
    Bug("a request may come twice", "rows", "I4", edit(
        f"{ROWS}._request_faults", "if id(req) in seen:", "if False:",
    )),
    Bug("a row without KV goes on", "rows", "I26", edit(
        f"{ROWS}._request_faults",
        "elif tokens <= 0 or not req.kv.holds_kv:", "elif False:",
    )),
    Bug("the hook isn't told", "rows", "I26", edit(
        f"{ROWS}.alloc_rows", "if self._hook is not None:", "if False:",
    )),
    Bug("the hook is told one row", "rows", "I26", edit(
        f"{ROWS}.alloc_rows", "self._hook(list(rows))", "self._hook(list(rows[:1]))",
    )),
    Bug("a write goes one column too far", "rows", "I33", edit(
        "table:write", "table[rows, cols] = values",
        "table[rows, cols] = values\n"
        "    if isinstance(cols, slice) and 0 < cols.stop < width:\n"
        "        table[rows, cols.stop] = 0",
    )),
    Bug("clear wipes the table", "rows", "I33", edit(
        f"{ROWS}.clear", "self._is_held =", "self.req_to_token.zero_()\n    self._is_held =",
    )),
    Bug("clear keeps rows held", "rows", "I66", edit(
        f"{ROWS}.clear", "self._is_held = bytearray(self.size + 1)",
        "self._is_held = getattr(self, '_is_held', bytearray(self.size + 1))",
    )),
    Bug("available_size counts all rows", "rows", "I2", edit(
        f"{ROWS}.available_size", "len(self.free_slots)", "self.size",
    )),
    Bug("freed rows are lost", "rows", "I2", edit(
        f"{ROWS}._take_back", "self.free_slots += rows", "self.free_slots += rows[:1]",
    )),
)  # fmt: skip
