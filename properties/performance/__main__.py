"""`python -m properties.performance`: the benchmark by itself, its table and a JSON file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from properties.performance import bench
from properties.subjects.impl import default_device

UNUSABLE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases asked for. Exit status 0, or 2 where none is."""
    parser = argparse.ArgumentParser(
        prog="python -m properties.performance",
        description="Time the allocators, and SGLang's beside them where it is installed.",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain it")
    parser.add_argument("--seconds", type=float, default=bench.SECONDS_PER_CASE, help="per case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args(arguments)
    device = torch.device(default_device())
    chosen = [case for case in bench.all_cases(device) if options.only in case.full_name]
    if not chosen:
        print(f"no case contains {options.only!r}")
        return UNUSABLE
    results = bench.run(device, chosen, lambda line: print(line, flush=True), options.seconds)
    if options.out:
        options.out.write_text(json.dumps([each.to_json() for each in results], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
