"""SGLang 0.5.23's memory pools on a CPU, where what they import beside is not installed.

`memory_pool` pulls in the attention layers and the model configs for a handful of names, and with
them transformers, torchvision, tvm_ffi and more. Where the real modules can be imported they are.
Elsewhere, and only while `module` imports, packages stand without their `__init__`, so that their
own files are found, and modules of layers are replaced by the names that are asked of them. What is
called of these raises: no result of a pool under test comes from a stand-in.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

#: the classes that the stand-ins are for, by module
UNDER_TEST: dict[str, tuple[str, ...]] = {
    "sglang.srt.mem_cache.memory_pool": (
        "DSATokenToKVPool",
        "HybridLinearKVPool",
        "HybridReqToTokenPool",
        "KVWriteLoc",
        "MambaPool",
        "MHATokenToKOnlyPool",
        "MHATokenToKVPool",
        "MLATokenToKVPool",
        "ReqToTokenPool",
    ),
    "sglang.srt.mem_cache.ple_state_pool": ("NGramPool", "ShortConvPool"),
    "sglang.srt.mem_cache.allocator.mamba": ("MambaSlotAllocator",),
    "sglang.srt.mem_cache.allocator.swa": ("SWATokenToKVPoolAllocator",),
    "sglang.srt.mem_cache.base_swa_memory_pool": ("BaseSWAKVPool",),
    "sglang.srt.mem_cache.index_key_cache": ("IndexKeyCache",),
    "sglang.srt.mem_cache.pool_host.base": ("HostKVCache",),
    "sglang.srt.mem_cache.swa_memory_pool": ("SWAKVPool",),
    "sglang.srt.configs.mamba_utils": (
        "KimiLinearCacheParams",
        "KimiLinearStateShape",
        "Mamba2CacheParams",
        "Mamba2StateDType",
        "Mamba2StateShape",
    ),
}
#: imported with the first of them: by methods of theirs when they are called, or of their kind
WITH_THEM = (
    "sglang.srt.mem_cache.memory_pool",
    "sglang.srt.mem_cache.mamba_checkpoint_pool",
    "sglang.srt.mem_cache.swa_memory_pool",
)
#: packages that import all of their modules first, which need transformers and much else
SHELLS = ("sglang.srt.configs", "sglang.srt.layers", "sglang.srt.layers.dcp")
#: modules of those packages → the classes and functions that the pools import from there
REPLACED: dict[str, tuple[str, ...]] = {
    "sglang.srt.layers.quantization.fp4_kv_cache_quant_method": ("UnquantizedKVCacheMethod",),
    "sglang.srt.layers.radix_attention": ("RadixAttention",),
}
#: and what they ask of one while they are imported: its answers where there is no AMD GPU
ANSWERED: dict[str, dict[str, Any]] = {
    "sglang.srt.layers.attention.dsa.utils": {
        "aiter_can_use_preshuffle_paged_mqa": lambda: False,
        "INDEXER_K_CACHE_PRESHUFFLE_TILE": 16,
    },
}


@cache
def module(name: str) -> ModuleType:
    """The module `name`, a key of `UNDER_TEST`, as SGLang's package has it."""
    if name not in UNDER_TEST:
        raise LookupError(f"stand-ins are for {', '.join(UNDER_TEST)}, not for {name}")
    try:
        return _imported(name)
    except ImportError:
        with standins():
            return _imported(name)


def _imported(name: str) -> ModuleType:
    for other in WITH_THEM:
        importlib.import_module(other)
    return importlib.import_module(name)


def pool_class(name: str) -> Any:
    """SGLang's class of this name, one of `UNDER_TEST`."""
    for module_name, names in UNDER_TEST.items():
        if name in names:
            return getattr(module(module_name), name)
    raise LookupError(f"no class under test is called {name}")


@contextmanager
def standins() -> Iterator[None]:
    """Stand-ins may be imported inside, and are gone afterwards; what is there already stays."""
    made = [*map(_shell, SHELLS), *(_replaced(name, REPLACED[name]) for name in REPLACED)]
    made += [_answered(name, ANSWERED[name]) for name in ANSWERED]
    put = {each.__name__: each for each in made if each.__name__ not in sys.modules}
    sys.modules.update(put)
    try:
        yield
    finally:
        for name, each in put.items():
            if sys.modules.get(name) is each:
                del sys.modules[name]
            parent, _, attribute = name.rpartition(".")
            if vars(sys.modules.get(parent, each)).get(attribute) is each:
                delattr(sys.modules[parent], attribute)


def _shell(name: str) -> ModuleType:
    """A package whose modules are found in SGLang's own folder, and whose `__init__` isn't run."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("SGLang is not installed", name="sglang")
    made = ModuleType(name, "Stands in for a package while SGLang's pools are imported.")
    below = "/".join(name.split(".")[1:])
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = [f"{folder}/{below}" for folder in spec.submodule_search_locations]
    return made


def _replaced(name: str, exports: tuple[str, ...]) -> ModuleType:
    """A module of nothing but `exports`: classes where the name is one's, else functions."""
    made = ModuleType(name, "Stands in for a module while SGLang's pools are imported.")
    made.__spec__ = ModuleSpec(name, None)
    for each in exports:
        body = {"__init__": _unusable(each), "__module__": name}
        vars(made)[each] = type(each, (), body) if each[0].isupper() else _unusable(each)
    return made


def _answered(name: str, answers: dict[str, Any]) -> ModuleType:
    """A module that has `answers`."""
    made = _replaced(name, ())
    vars(made).update(answers)
    return made


def _unusable(name: str) -> Any:
    def unusable(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is a stand-in: SGLang's pools don't need it on a CPU")

    return unusable
