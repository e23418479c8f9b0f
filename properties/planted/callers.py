"""Bugs of those who call the allocators, each a command that is legal use to its caller.

`impl` is as it should be. Spec: `spec/core.md` §3, §4, §5a.
"""

from __future__ import annotations

from properties.planted.bug import Bug

BUGS = (
    Bug("two paths release a finished request's last slot", "token", "I5", entry=8,
        faulty="finish_on_two_paths"),
    Bug("two functions release one slice", "token", "I5", entry=52,
        faulty="release_slice_twice"),
    Bug("a decode behind encoder slots counts the decoder's only", "paged", "I12", entry=15,
        faulty="decode_by_own_length"),
    Bug("segments meet inside a page", "paged", "I36", entry=44,
        faulty="free_cut_segments"),
    Bug("a finished request forgets what it took ahead", "paged", "I32", entry=67,
        faulty="finish_committed"),
    Bug("drafts are evicted from inside a page on", "paged", "I35", entry=69,
        faulty="evict_unaligned"),
    Bug("a chunk begins at the first position again", "paged_rows", "I33", entry=75,
        faulty="forget_progress"),
    Bug("pages go back while a copy of them is under way", "overlap", "I65", entry=65,
        faulty="release_under_copy"),
)  # fmt: skip
