"""The Triton kernels against plain Python, one call at a time, with guards around every buffer.

They run in Triton's interpreter where there is no GPU. Spec: `spec/core.md` §4, §5, §5a.
"""
