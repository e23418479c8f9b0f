"""The worked numbers of KV pools, their host tier and their descriptions to a transfer.

`spec/pools_states_sizing.md` §7 to §12, `spec/interleave_hisparse_host_prefix.md` §4, §5; those of
capacities and declarations stand in `test_impl_host_plans.py`, those of states in
`test_impl_state_pools.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from impl import (
    DSATokenToKVPool,
    HostKVPool,
    HybridLinearKVPool,
    MHATokenToKOnlyPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    SWAKVPool,
)
from impl.kernels.kv_rows import FLOATS, FP8
from impl.storage.packed import calculate_mla_kv_cache_dim
from properties.subjects.allocated import allocated_bytes, require_reported
from properties.test_impl_kv import mha, sparse

E4M3 = torch.float8_e4m3fn
DTYPES = pytest.mark.parametrize("dtype", [*FLOATS, *FP8], ids=str)
#: 8 slots in pages of 4, two heads of 3 numbers, two layers
SIZES: dict[str, Any] = {"size": 8, "page_size": 4, "device": "cpu"}


def heads(dtype: torch.dtype, **options: Any) -> MHATokenToKVPool:
    """Values of 5 numbers."""
    given = {"head_num": 2, "head_dim": 3, "v_head_dim": 5, "layer_num": 2, **SIZES}
    return MHATokenToKVPool(dtype=dtype, **{**given, **options})


@DTYPES
def test_bytes_of_every_kind(dtype: torch.dtype) -> None:
    """§8, §9, §10, §11, §12, §13: (size + ps) rows of each layer, of the type that is stored."""
    each, rows = dtype.itemsize, 8 + 4
    keys, values = rows * 2 * 3 * each * 2, rows * 2 * 5 * each * 2
    plain = heads(dtype)
    assert plain.get_kv_size_bytes() == (keys, values)
    assert HybridLinearKVPool(plain, [1, 5]).get_kv_size_bytes() == (keys, values)
    alone = MHATokenToKOnlyPool(8, 4, dtype, 2, 3, 2, device="cpu")
    assert alone.get_kv_size_bytes() == (keys, 0)
    latent = MLATokenToKVPool(8, 4, dtype, 7, 2, 3, device="cpu")
    assert latent.get_kv_size_bytes() == rows * 9 * each * 3
    width = calculate_mla_kv_cache_dim(128, 2, dtype, is_dsa=dtype is E4M3)
    assert width == (128 + 4 + 2 * 2 if dtype is E4M3 else 130)
    indexed = DSATokenToKVPool(
        8, 4, dtype, 128, 2, 3, kv_cache_dim=width, skip_topk_layers=[True, False, False],
        device="cpu",
    )  # fmt: skip
    latents = rows * (width if dtype is E4M3 else 130 * each) * 3
    assert indexed.get_kv_size_bytes() == latents + 3 * 4 * 132 * 2
    windows = SWAKVPool(
        8, 4, 4, dtype, 2, 3, [0, 2], [1], v_head_dim=5, device="cpu"
    )  # two of the window side's layers, of one page
    assert windows.get_kv_size_bytes() == tuple(
        rows * 2 * width * each + 8 * 2 * width * each * 2 for width in (3, 5)
    )
    pools: list[Any] = [plain, alone, latent, indexed, windows, HybridLinearKVPool(plain, [1, 5])]
    for pool in pools:
        require_reported(pool, pool.get_kv_size_bytes())
    for pool in pools[:4]:
        assert pool.mem_usage * 2**30 == allocated_bytes(pool)


def test_bytes_of_heads() -> None:
    """(size + ps) * H * (Dk + Dv) * itemsize * L, keys and values apart."""
    pool = mha(v_head_dim=5, dtype=torch.bfloat16)
    assert pool.get_kv_size_bytes() == (12 * 2 * 3 * 2 * 2, 12 * 2 * 5 * 2 * 2)
    assert [each.shape for each in pool.k_buffer] == [(12, 2, 3)] * 2
    assert [each.shape for each in pool.v_buffer] == [(12, 2, 5)] * 2
    assert sum(pool.get_contiguous_buf_infos()[1]) == sum(pool.get_kv_size_bytes())
    assert pool.get_contiguous_buf_infos()[2] == [4 * 2 * 3 * 2] * 2 + [4 * 2 * 5 * 2] * 2
    assert pool.mem_usage == sum(pool.get_kv_size_bytes()) / 2**30


def test_bytes_of_latents() -> None:
    """At DeepSeek-V3's size 576 numbers a token and layer, against 2 * 128 * 128 of plain heads."""
    latent = MLATokenToKVPool(64, 64, torch.bfloat16, 512, 64, 1, device="cpu")
    heads = MHATokenToKVPool(64, 64, torch.bfloat16, 128, 128, 1, device="cpu")
    numbers = [
        latent.get_kv_size_bytes() // 2 // latent.num_rows,
        sum(heads.get_kv_size_bytes()) // 2 // heads.num_rows,
    ]
    assert numbers == [576, 2 * 128 * 128]
    assert numbers[1] // numbers[0] == 56  # 56.9
    assert latent.get_value_buffer(0).shape == (128, 1, 512)
    assert latent.get_value_buffer(0).data_ptr() == latent.get_key_buffer(0).data_ptr()


@pytest.mark.parametrize(
    ("dtype", "options", "due"),
    [
        (E4M3, {"is_dsa": True}, 656),
        (E4M3, {"is_dsa": True, "raw": True}, 576),
        (E4M3, {"is_dsa": False}, 576),
        (torch.bfloat16, {"is_dsa": True}, 576),
    ],
)
def test_row_widths(dtype: torch.dtype, options: dict[str, bool], due: int) -> None:
    """512 fp8 bytes, 4 scales of 4 bytes, 64 bfloat16 ones: 656; or as they are."""
    assert calculate_mla_kv_cache_dim(512, 64, dtype, **options) == due


def test_pages_of_layers_that_are_skipped() -> None:
    """Two pages of 64 and the reserved one: [3, 8448], none where a layer is skipped."""
    pool = sparse(size=128, page_size=64, skip_topk_layers=[False, True, False])
    pages = pool.index_k_with_scale_buffer
    assert [tuple(each.shape) for each in pages] == [(3, 8448), (0, 8448), (3, 8448)]
    assert pool.get_kv_size_bytes() == 192 * 656 * 3 + 3 * 64 * 132 * 2
    assert pool.get_state_buf_infos()[1:] == ([3 * 8448, 0, 3 * 8448], [8448, 0, 8448])
    assert tuple(pool.kv_buffer[0].shape) == (192, 1, 656)


def test_a_row_of_deepseek() -> None:
    """§9, §10: 576 numbers or 656 bytes of a token, with 132 bytes of index key beside them."""
    given: dict[str, Any] = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "device": "cpu"}
    packed = DSATokenToKVPool(64, 64, E4M3, layer_num=1, kv_cache_dim=656, **given)
    assert packed.kv_buffer[0].shape == (128, 1, 656)
    assert packed.kv_buffer[0].dtype is torch.uint8
    assert [each.row_bytes for each in packed.buffers] == [656, 128, 4]
    raw = DSATokenToKVPool(64, 64, torch.bfloat16, layer_num=1, **given)
    assert [each.row_bytes for each in raw.buffers] == [576 * 2, 128, 4]
    # only an fp8 pool of this kind is packed, whatever width it is told
    plain = MLATokenToKVPool(64, 64, E4M3, layer_num=1, **given)
    assert plain.kv_buffer[0].shape == (128, 1, 576)


@pytest.mark.parametrize(("slots", "shape"), [(128, (3, 8448)), (320, (6, 8448))])
def test_index_pages(slots: int, shape: tuple[int, int]) -> None:
    """§10: pages of 64 for 128 slots, or as many as two ranks' 320 need; keys, then scales."""
    pool = DSATokenToKVPool(128, 64, torch.bfloat16, 2, 1, 1, index_buf_size=slots, device="cpu")
    (pages,) = pool.index_k_with_scale_buffer
    assert pages.shape == shape
    token = 64 + 5
    keys = torch.arange(128, dtype=torch.uint8)[None]
    pool.set_index_k_scale_buffer(0, torch.tensor([token]), keys, torch.tensor([[0.5]]))
    page, offset = divmod(token, 64)
    assert torch.equal(pages[page, offset * 128 : (offset + 1) * 128], keys[0])
    scale = pages[page, 64 * 128 + offset * 4 : 64 * 128 + (offset + 1) * 4]
    assert scale.clone().view(torch.float32).tolist() == [0.5]
    assert int((pages != 0).sum()) == 127 + 1, "bytes that aren't 0, of the key and of 0.5"


def test_what_a_transfer_is_told() -> None:
    """§8 A6, §9, §12: keys' layers then values', whole buffers, in pages that make them up."""
    pool = heads(torch.float16)
    addresses, lengths, items = pool.get_contiguous_buf_infos()
    assert addresses == [each.data_ptr() for each in (*pool.k_buffer, *pool.v_buffer)]
    assert lengths == [12 * 2 * 3 * 2] * 2 + [12 * 2 * 5 * 2] * 2
    assert [length // item for length, item in zip(lengths, items, strict=True)] == [3] * 4
    windows = SWAKVPool(8, 4, 4, torch.float16, 2, 3, [0, 2], [1], device="cpu")
    assert windows.get_contiguous_buf_infos()[1:] == ([144] * 2, [48] * 2)
    assert windows.get_state_buf_infos()[1:] == ([96] * 4, [48] * 4)


def test_a_page_on_the_host() -> None:
    """IH §4.5: two layers of two heads of 8 in bfloat16, 12 slots in pages of 4, layer first."""
    pool = MHATokenToKVPool(8, 4, torch.bfloat16, 2, 8, 2, device="cpu")
    host = HostKVPool(pool, 12)
    assert host.size_per_token == (8 + 8) * 2 * 2 * 2 == 128
    stride = {each.row_bytes for each in host.buffers}
    assert stride == {32}
    # 2 L runs to a page, of ps * stride; a component's page and all of its bytes
    runs = [4 * each.row_bytes for each in host.buffers]
    assert runs == [128] * 4
    assert sum(runs) // 2 == 256
    assert host.get_size_bytes() == 2 * 768 == 12 * 128
    latent = HostKVPool(MLATokenToKVPool(8, 4, torch.bfloat16, 512, 64, 3, device="cpu"), 4)
    assert latent.size_per_token == 576 * 2 * 3


def test_restored_windows() -> None:
    """§12: a window comes back where it was saved and is mapped; 12 to 4, and 2 to 6 of them."""
    for saved, mapped in ((12, 4), (2, 6)):
        pool = SWAKVPool(12, 12, 1, torch.float32, 1, 1, [0], [1], device="cpu")
        mapping = torch.zeros(14, dtype=torch.int64)
        mapping[-1] = -1
        pool.register_mapping(mapping)
        slots = torch.arange(1, 13)
        mapping[1 : saved + 1] = torch.arange(1, saved + 1)
        rows = torch.arange(1.0, 13).view(12, 1, 1)
        windows: Any = pool.swa_kv_pool
        windows.set_kv_buffer(0, slots, rows, rows)
        copy = pool.get_cpu_copy(slots)
        assert int(copy.swa_mask.sum()) == saved
        mapping[1:-1] = 0
        mapping[1 : mapped + 1] = torch.arange(12, 12 - mapped, -1)
        windows.set_kv_buffer(0, slots, -rows, -rows)
        pool.load_cpu_copy(copy, slots)
        back = min(saved, mapped)
        found = windows.get_key_buffer(0)[1:, 0, 0]
        due = -rows[:, 0, 0]
        due[12 - back :] = torch.arange(back, 0, -1)
        assert found.tolist() == due.tolist()
