"""The reference of the state pools behind the Subject interface, siblings and forward included."""

from __future__ import annotations

from typing import Any

from properties.commands import Call
from reference import MambaPool, NGramPool, ShortConvPool

EOS = 7
#: what `iter_transfer_state_entries` is asked of
Entry = tuple[str, int, int | None, int]


class StatePoolsReference:
    """A pool of states, its siblings, and what a forward writes into their tensors."""

    def __init__(self, config: Any) -> None:
        self.config = config
        draft = {"spec_state_size": config.rows, "num_draft_tokens": config.draft_tokens}
        self.pool = MambaPool(
            config.size,
            layer_ids=config.layer_ids,
            conv_shapes=config.conv_shapes,
            temporal_shape=config.temporal_shape,
            conv_kernel=config.window + 1,
            topk=config.topk,
            overlap=not config.kimi,
            slice_axis=int(config.kimi),
            conv_bytes=config.item_bytes,
            temporal_bytes=4,
            **draft,
        )
        self.siblings: dict[str, Any] = {
            "short_conv": ShortConvPool(
                config.size, config.num_short, config.short_layer_ids,
                item_bytes=config.item_bytes, **draft,
            ),
            "ngram": NGramPool(config.size, config.ngram, EOS, **draft),
        }  # fmt: skip
        for each in self.siblings.values():
            self.pool.register_slot_state(each)

    @property
    def target(self) -> StatePoolsReference:
        """What a model reads: all of it."""
        return self

    def call(self, call: Call) -> Any:
        return getattr(self, f"_{call.method}", self._plainly)(call.method, dict(call.args))

    def _plainly(self, method: str, args: dict[str, Any]) -> Any:
        which = args.pop("which", "pool")
        if method.endswith("_context"):
            which = "ngram"
        target = self.pool if which == "pool" else self.siblings[which]
        return getattr(target, method)(**args)

    def _register_slot_state(self, method: str, args: dict[str, Any]) -> None:
        made = {"another size": NGramPool(self.config.size + 1, 1, EOS), "no state": None}
        self.pool.register_slot_state({**made, **self.siblings}[args["what"]])

    def _mamba2_layer_cache(self, method: str, args: dict[str, Any]) -> None:
        self.pool.write(args["layer_id"], args["slot"], args["convs"], args["temporal"])

    def _get_speculative_mamba2_params_all_layers(self, method: str, args: dict[str, Any]) -> None:
        self.pool.write_draft(**args)

    def _layer_cache(self, method: str, args: dict[str, Any]) -> None:
        self.siblings["short_conv"].write(**args)

    def _layer_intermediate_cache(self, method: str, args: dict[str, Any]) -> None:
        self.siblings["short_conv"].write_draft(**args)

    def _iter_transfer_state_entries(self, method: str, args: dict[str, Any]) -> list[Entry]:
        found: list[Entry] = self.siblings[args["which"]].entries()
        return found

    def _get_contiguous_buf_infos(self, method: str, args: dict[str, Any]) -> list[Any]:
        """Per entry: bytes in all and of a slot, the shared axis' length, pieces, layer."""
        found = []
        for name, size, axis, layer in self.pool.entries():
            shape = self.config.temporal_shape if name == "temporal" else self._shape_of(size)
            slots = self.config.size + 1
            shared = 0 if axis is None else shape[axis]
            pieces = shape[0] if axis == 1 else 1
            found.append([slots * size, size, shared, pieces, layer, None])
        return found

    def _shape_of(self, size: int) -> tuple[int, ...]:
        """The conv of that many bytes: they differ in their channels."""
        shapes = {a * b * self.config.item_bytes: (a, b) for a, b in self.config.conv_shapes}
        return shapes.get(size, (0, 0))

    def observe(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.pool.snapshot()
        for name, sibling in self.siblings.items():
            shown |= {f"{name}_{key}": value for key, value in sibling.snapshot().items()}
        rows = shown["ngram_draft"]
        shown["ngram_draft"], shown["ngram_draft_reserved"] = rows[:-1], rows[-1:]
        return shown
