"""Recurrent states and their siblings, slot by slot (`pools_states_sizing.md` §3, §5)."""

from reference.states.mamba import MambaPool
from reference.states.ngram import NGramPool
from reference.states.short_conv import ShortConvPool

__all__ = ["MambaPool", "NGramPool", "ShortConvPool"]
