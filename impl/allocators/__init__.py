"""Which slots are free: the contract in `base`, a module per family. Spec: `spec/core.md`."""
