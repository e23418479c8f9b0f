"""Run in a child process, without the interpreter: compiles every kernel, and prints what became
of it as JSON. Needs no GPU: `python -m properties.kernels.compiled cuda 90`.

`python -m properties.kernels.compiled keys` prints instead how many variants a thousand random
calls of every launcher would compile. Spec: `spec/core.md` §5.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

# Each kernel with the values of its constexprs; FUSED says no on AMD GPUs. Moves have ids of what
# they read or of what they write, or both.
BOTH = (False, True)
VARIANTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "extend.plan": {"ROWS": BOTH, "DECODE": BOTH, "FUSED": BOTH},
    "extend.fill": {"ROWS": BOTH, "DECODE": BOTH},
    "take.take_slots": {},
    "release.release_runs": {"SOURCE": (0, 1, 2, 3)},
    "slots.sort_keys": {},
    "slots.release_slots": {"SEGMENTED": BOTH},
    "merge.merge_states": {},
    "slot_moves.check_ids": {"FROM": BOTH, "TO": BOTH},
    "slot_moves.fill_rows": {},
    "slot_moves.move_rows": {"FROM": BOTH, "TO": BOTH},
    "windows.resolve_pages": {},
    # one for each way to make codes, raw rows among them
    "kv_rows.store_rows": {
        "FORMAT": (0, 1, 2, 3, 4, 5), "BITS": (True,), "A_SCALED": (True,), "B_SCALED": (False,),
        "LIMITED": (True,), "CHECKED": (True,), "LANES": (4,), "COLUMNS": (256,),
    },
    "kv_rows.check_moves": {},
    "kv_rows.move_slots": {"LANES": (32,), "WORDS": (32,)},
}  # fmt: skip
POINTERS = {
    "states": "*u8",
    "holder_row": "*i32",
    "claim": "*i32",
    "table": "*i32",
    # The narrow form of what may be either: then a cast is compiled too.
    "prefix_lens": "*i32",
    "seq_lens": "*i32",
    "last_loc": "*i32",
    "rows": "*i32",
    "slots": "*i32",
    "values": "*i32",
    # bits of bfloat16
    "a": "*i16",
    "b": "*i16",
    "a_scale": "*fp32",
    "b_scale": "*fp32",
    "limits": "*i32",
}


def signature(kernel: Any) -> dict[str, str]:
    """Types of the arguments, by name: int64 unless said otherwise."""
    types = {}
    for param in kernel.params:
        declared = param.annotation_type or POINTERS.get(param.name, "*i64")
        types[param.name] = "constexpr" if param.is_constexpr else declared
    return types


def variants(name: str, backend: str) -> Iterator[dict[str, Any]]:
    """The constexprs that a backend uses."""
    choices = dict(VARIANTS[name])
    if "FUSED" in choices:
        choices["FUSED"] = (backend != "hip",)
    for values in itertools.product(*choices.values()):
        chosen = dict(zip(choices, values, strict=True))
        if chosen.get("FROM", True) or chosen.get("TO", True):
            yield chosen


def uses_of(register: str, ptx: str) -> list[tuple[str, str]]:
    """Opcode and destination of the instructions that take a register."""
    line = rf"^\s*(?:@\S+ )?([\w.]+)\s+(%\w+), [^;]*{re.escape(register)}\b[^;]*;"
    return re.findall(line, ptx, re.M)


def stride_uses(kernel: Any, ptx: str) -> list[str]:
    """How the row stride is loaded and multiplied, as PTX names it, and conversions of products.

    A product of 32 bits may be a multiplication of 64 bits, cut afterwards.
    """
    names = [param.name for param in kernel.params if not param.is_constexpr]
    at = names.index("row_stride" if "row_stride" in names else "a_row")
    found = re.search(rf"ld\.param\.(\w+)\s+(%\w+), \[\w+_param_{at}\]", ptx)
    if found is None:
        return []
    uses = uses_of(found.group(2), ptx)
    cuts = [
        opcode
        for _, product in uses
        for opcode, _ in uses_of(product, ptx)
        if opcode.startswith("cvt")
    ]
    return [f"ld.param.{found.group(1)}", *(opcode for opcode, _ in uses), *cuts]


def narrowed(ir: str) -> list[str] | None:
    """Multiplications of integers of less than 64 bits, and cuts to 32; None if nothing is wide.

    In the compiler's first form: the code itself has cut numbers in many ways.
    """
    products = re.findall(r"arith\.muli .* : (\S+)", ir)
    cuts = re.findall(r"arith\.trunci .* : (\S+i64>? to \S+i32>?)", ir)
    wide = [each for each in products if each.rstrip(">").endswith("i64")]
    return sorted({*cuts, *products} - {*wide}) if wide else None


def compile_one(kernel: Any, constexprs: dict[str, Any], target: Any) -> dict[str, Any]:
    """Registers, spilled bytes or registers, and the fate of the row stride."""
    import triton
    from triton.compiler import ASTSource

    from impl.kernels.device.common import BLOCK, OPTIONS

    compiler: Any = triton.compile
    tiled = {"BLOCK": BLOCK} if "BLOCK" in kernel.arg_names else {}
    source = ASTSource(kernel, signature(kernel), constexprs={**constexprs, **tiled})
    # Torch may be built for no GPU, or for another: what a launch on the target has.
    options = {k: v for k, v in OPTIONS.items() if k != "maxnreg" or target.backend == "cuda"}
    log = io.StringIO()
    with contextlib.redirect_stdout(log):
        made = compiler(source, target=target, options=options)
    if target.backend == "hip":
        text = made.asm["amdgcn"]
        spilled = re.findall(r"\.[sv]gpr_spill_count: +(\d+)", text)
        return {"registers": re.findall(r"\.vgpr_count: +(\d+)", text), "spilled": spilled}
    text = log.getvalue()
    report: dict[str, Any] = {
        "registers": re.findall(r"Used (\d+) registers", text),
        "spilled": re.findall(r"(\d+) bytes spill (?:stores|loads)", text),
    }
    names = {param.name for param in kernel.params}
    if names & {"a_row", "lines"}:
        # strides of buffers: arguments, or in memory
        report["narrowed"] = narrowed(made.asm["ttir"])
    through_rows = constexprs.get("ROWS") or constexprs.get("SOURCE") == 3
    if through_rows or names & {"layer_stride", "a_row"}:
        report["stride"] = stride_uses(kernel, made.asm["ptx"])
    return report


def compile_all(backend: str, arch: str) -> list[dict[str, Any]]:
    """Every kernel in every variant for one target."""
    from triton.backends.compiler import GPUTarget

    from impl.kernels import device

    modules = device.load()
    target = GPUTarget(
        backend, arch if backend == "hip" else int(arch), 64 if backend == "hip" else 32
    )
    reports = []
    for name in VARIANTS:
        module, kernel = name.split(".")
        for constexprs in variants(name, backend):
            found = compile_one(getattr(getattr(modules, module), kernel), constexprs, target)
            reports.append({"kernel": name, "constexprs": constexprs, **found})
    return reports


def main() -> None:
    """What the arguments ask for, on standard output."""
    if sys.argv[1] == "keys":
        from properties.kernels import keys

        print(json.dumps(keys.count()))
        return
    with tempfile.TemporaryDirectory() as cache:
        # A cache of its own: a cached kernel has no log. Lines of Python in the code are of no use.
        os.environ |= {
            "TRITON_CACHE_DIR": cache,
            "TRITON_DUMP_PTXAS_LOG": "1",
            "TRITON_DISABLE_LINE_INFO": "1",
        }
        print(json.dumps(compile_all(*sys.argv[1:])))


if __name__ == "__main__":
    main()
