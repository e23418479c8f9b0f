"""State pools of torch tensors as subjects: plain values in and out, a forward in between.

What SGLang's pools and ours share: tensors by the same names. An adapter adds how to build them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from properties.commands import Call
from properties.subjects.protocol import TensorSubject
from properties.subjects.state_pools_reference import Entry

Content = dict[str, list[Any]]


class StatePoolsSubject(TensorSubject):
    """A pool of states and its siblings, "short_conv" and "ngram", of a config."""

    def __init__(self, config: Any, pool: Any, siblings: dict[str, Any], device: str) -> None:
        super().__init__(pool, device=device)
        self.config = config
        self.siblings = siblings
        self.chosen = pool
        for each in siblings.values():
            self.calls |= {name for name in dir(each) if name[0] != "_"}

    def call(self, call: Call) -> Any:
        self.lent, self.passed = [], []
        args = dict(call.args)
        which = "ngram" if call.method.endswith("_context") else args.pop("which", "pool")
        self.chosen = {"pool": self.target, **self.siblings}[which]
        special = getattr(self, f"_{call.method}", None)
        if special is not None:
            return special(**args)
        if "context" in args:
            args["context"] = self._context(args["context"], "intermediate" in call.method)
        if "data" in args:
            args["data"] = self._sibling_payload(which, args["data"])
        if "mamba_cache_cpu" in args:
            args["mamba_cache_cpu"] = self._payload(args["mamba_cache_cpu"])
        given = [value for value in args.values() if isinstance(value, torch.Tensor)]
        value = super().call(call._replace(args=args))
        self.lent += given
        if call.method == "get_cpu_slots":
            return self._sibling_contents(which, value)
        return self._contents(value) if call.method == "get_cpu_copy" else value

    def method(self, name: str) -> Any:
        return getattr(self.chosen, name)

    def plain(self, value: Any) -> Any:
        """Ids and contexts as lists; what becomes contents stays what it is till then."""
        if isinstance(value, torch.Tensor) and self.chosen is self.siblings["ngram"]:
            return super().plain(value)
        return value

    # ---- what a forward does --------------------

    def _mamba2_layer_cache(self, layer_id: int, slot: int, convs: Any, temporal: Any) -> None:
        record = self.target.mamba2_layer_cache(layer_id)
        for tensor, values in zip(record.conv, convs, strict=True):
            write(tensor[slot], values)
        write(record.temporal[slot], temporal)

    def _get_speculative_mamba2_params_all_layers(
        self, place: int, row: int, step: int, convs: Any, temporal: Any
    ) -> None:
        record = self.target.get_speculative_mamba2_params_all_layers()
        for tensor, values in zip(record.intermediate_conv_window, convs, strict=True):
            write(tensor[place, row, step], values)
        write(record.intermediate_ssm[place, row, step], temporal)

    def _layer_cache(self, layer_id: int, slot: int, values: Any) -> None:
        write(self.siblings["short_conv"].layer_cache(layer_id)[slot], values)

    def _layer_intermediate_cache(self, layer_id: int, row: int, step: int, values: Any) -> None:
        write(self.siblings["short_conv"].layer_intermediate_cache(layer_id)[row, step], values)

    # ---- descriptions --------------------

    def _get_contiguous_buf_infos(self) -> list[Any]:
        pool = self.target
        addresses, *sizes = pool.get_contiguous_buf_infos()
        columns = (
            *sizes, pool.get_state_dim_per_tensor(), pool.get_state_slice_outer_counts(),
            pool.get_state_layer_ids(), pool.get_state_conv_shard_groups(),
        )  # fmt: skip
        assert len(set(addresses)) == len(addresses)
        return [list(line) for line in zip(*columns, strict=True)]

    def _iter_transfer_state_entries(self) -> list[Entry]:
        return [
            (name, tensor[0].nbytes, axis, layer)
            for name, tensor, axis, layer in self.chosen.iter_transfer_state_entries()
        ]

    # ---- payloads --------------------

    def _context(self, context: Sequence[Any], steps: bool) -> torch.Tensor:
        """Contexts, or contexts of draft steps."""
        shape: tuple[int, ...] = (len(context), self.config.ngram)
        if steps:
            shape = (len(context), len(context[0]) if context else 0, self.config.ngram)
        return torch.tensor(context, dtype=torch.int64, device=self.device).reshape(shape)

    def _part(self, values: list[list[Any]], like: torch.Tensor, axis: int) -> torch.Tensor:
        """A payload of rows, given in the order of `like`, flat ones where they don't fit."""
        due = list(like.shape)
        due[axis] = len(values) // (like.shape[0] if axis else 1)
        made = torch.tensor(values, dtype=like.dtype)
        fits = made.numel() == torch.Size(due).numel()
        return made.reshape(due) if fits else made.reshape(*due[: axis + 1], -1)

    def _payload(self, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        own, *others = payload
        cache = self.target.mamba_cache
        conv = [
            self._layers(own, [f"conv{at}/{layer}" for layer in self.config.layer_ids], tensor)
            for at, tensor in enumerate(cache.conv)
        ]
        names = [f"temporal/{layer}" for layer in self.config.layer_ids]
        found = (conv, self._layers(own, names, cache.temporal))
        self.lent += [*conv, found[1]]
        there = [which for which, each in self.siblings.items() if each.enabled]
        rest = [
            [self._sibling_payload(*pair) for pair in zip(there, given, strict=True)]
            if given
            else given
            for given in others
        ]
        self.lent += [each for given in rest for each in given if each is not None]
        return (*found, *rest)

    def _layers(
        self, contents: list[Content], names: list[str], tensor: torch.Tensor
    ) -> torch.Tensor:
        return self._part([each[name] for name in names for each in contents], tensor, 1)

    def _sibling_payload(self, which: str, data: list[Content] | None) -> torch.Tensor | None:
        if data is None:
            return None
        if which == "ngram":
            return self._part([each["context"] for each in data], self.siblings[which].context, 0)
        names = [str(layer) for layer in self.config.short_layer_ids]
        return self._layers(data, names, self.siblings[which].conv_state)

    def _contents(self, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        """A host payload as contents, slot by slot."""
        conv, temporal, *others = payload
        self.lent += [*conv, temporal, *(each for given in others for each in given)]
        own = by_slot(self._named(conv, temporal), temporal.shape[1])
        there = [which for which, each in self.siblings.items() if each.enabled]
        return (
            own,
            *(
                [self._sibling_contents(*pair) for pair in zip(there, given, strict=True)]
                for given in others
            ),
        )

    def _named(self, conv: Sequence[torch.Tensor], temporal: torch.Tensor) -> dict[str, Any]:
        """Part → its rows, slot by slot."""
        found = {}
        for place, layer in enumerate(self.config.layer_ids):
            for at, tensor in enumerate(conv):
                found[f"conv{at}/{layer}"] = tensor[place].flatten(1).tolist()
            found[f"temporal/{layer}"] = temporal[place].flatten(1).tolist()
        return found

    def _sibling_contents(self, which: str, data: Any) -> list[Content] | None:
        if data is None:
            return None
        if isinstance(data, torch.Tensor):
            self.lent.append(data)
        if which == "ngram":
            rows = data.tolist() if isinstance(data, torch.Tensor) else data
            return [{"context": row} for row in rows]
        named = {
            str(layer): data[place].flatten(1).tolist()
            for place, layer in enumerate(self.config.short_layer_ids)
        }
        return by_slot(named, data.shape[1])

    # ---- what is seen --------------------

    def observe(self) -> dict[str, Any]:
        cache, slots = self.target.mamba_cache, self.config.size + 1
        reserved, *state = by_slot(self._named(cache.conv, cache.temporal), slots)
        shown: dict[str, Any] = {"state": state, "reserved": reserved, "draft": self._draft(cache)}
        for which, tensor, draft in (
            ("short_conv", *self._short_tensors()), ("ngram", *self._ngram_tensors()),
        ):  # fmt: skip
            lent = list(self.lent)
            contents = self._sibling_contents(which, tensor) or []
            self.lent = lent
            shown[f"{which}_state"] = contents[1:]
            shown[f"{which}_reserved"] = contents[0] if contents else {}
            shown[f"{which}_draft"] = [] if draft is None else draft
        rows = shown["ngram_draft"]
        shown["ngram_draft"], shown["ngram_draft_reserved"] = rows[:-1], rows[-1:]
        return shown

    def _short_tensors(self) -> tuple[Any, Any]:
        short = self.siblings["short_conv"]
        draft = short.intermediate_conv_state
        empty: list[Any] = [[] for _ in self.config.short_layer_ids]
        return short.conv_state, empty if draft is None else draft.flatten(3).tolist()

    def _ngram_tensors(self) -> tuple[Any, Any]:
        grams = self.siblings["ngram"]
        draft = grams.intermediate_context
        return grams.context, None if draft is None else draft.tolist()

    def _draft(self, cache: Any) -> list[Any]:
        """[place][row][step] → windows of the convs, temporal state."""
        if not self.config.draft:
            return [[] for _ in self.config.layer_ids]
        windows = [each.flatten(3).tolist() for each in cache.intermediate_conv_window]
        ssm = cache.intermediate_ssm.flatten(3).tolist()
        return [
            [
                [[*(each[place][row][step] for each in windows), values]
                 for step, values in enumerate(steps)]
                for row, steps in enumerate(rows)
            ]
            for place, rows in enumerate(ssm)
        ]  # fmt: skip


def write(where: torch.Tensor, values: Sequence[int]) -> None:
    """What a forward does: these values into a piece of a state."""
    where.copy_(torch.tensor(values, dtype=where.dtype).reshape(where.shape))


def by_slot(named: dict[str, Any], count: int) -> list[Content]:
    """Part → rows as one content for each slot."""
    return [{part: rows[slot] for part, rows in named.items()} for slot in range(count)]
