"""Conv windows of draft steps: one by one, or as stretches of one longer window (§3, M4)."""

from collections.abc import Sequence

Matrix = list[list[int]]


class DraftWindows:
    """The windows of one row of a batch, of `shape`, for `steps` steps.

    With an `axis`, the window's, step t is inputs t, t + 1, … of one list of inputs.
    """

    def __init__(self, steps: int, shape: Sequence[int], axis: int | None) -> None:
        self.shape, self.axis = tuple(shape), axis
        self.num_values = shape[0] * shape[1]
        self.single = [[0] * self.num_values for _ in range(steps if axis is None else 0)]
        self.inputs: Matrix = []
        if axis is not None:
            width, channels = shape[axis], shape[1 - axis]
            self.inputs = [[0] * channels for _ in range(steps + width - 1)]

    def write(self, step: int, values: Sequence[int]) -> None:
        """What a forward does in the window of a step; `values` line by line of `shape`."""
        if self.axis is None:
            self.single[step] = list(values)
            return
        for at, value in enumerate(values):
            line, column = divmod(at, self.shape[1])
            when, channel = (column, line) if self.axis == 1 else (line, column)
            self.inputs[step + when][channel] = value

    def read(self, step: int) -> list[int]:
        """The window of a step, line by line of `shape`."""
        if self.axis is None:
            return list(self.single[step])
        found = []
        for at in range(self.num_values):
            line, column = divmod(at, self.shape[1])
            when, channel = (column, line) if self.axis == 1 else (line, column)
            found.append(self.inputs[step + when][channel])
        return found

    def stored(self) -> int:
        """How many values are kept."""
        return sum(map(len, self.single)) + sum(map(len, self.inputs))
