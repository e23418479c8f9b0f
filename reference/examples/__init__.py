"""The worked examples of `spec/`, and one for every rule that has none there, as data."""

from reference.examples.form import Example, Request, RequestSpec, SizeConfig, Step, refused
from reference.examples.host_slots import HOST_SLOTS
from reference.examples.hybrid_rows import HYBRID_ROWS
from reference.examples.paged_alloc import PAGED_ALLOC
from reference.examples.paged_free import PAGED_FREE
from reference.examples.paged_group import PAGED_GROUP
from reference.examples.paged_misuse import PAGED_MISUSE
from reference.examples.paged_rows import PAGED_ROWS
from reference.examples.paged_rows_misuse import PAGED_ROWS_MISUSE
from reference.examples.paged_sort import PAGED_SORT
from reference.examples.rows import ROWS
from reference.examples.state_slots import STATE_SLOTS
from reference.examples.swa_alloc import SWA_ALLOC
from reference.examples.swa_free import SWA_FREE
from reference.examples.token import TOKEN

EXAMPLES: tuple[Example, ...] = (
    ROWS
    + TOKEN
    + PAGED_ALLOC
    + PAGED_FREE
    + PAGED_GROUP
    + PAGED_SORT
    + PAGED_MISUSE
    + PAGED_ROWS
    + PAGED_ROWS_MISUSE
    + STATE_SLOTS
    + HOST_SLOTS
    + SWA_ALLOC
    + SWA_FREE
    + HYBRID_ROWS
)

__all__ = [
    "EXAMPLES",
    "Example",
    "Request",
    "RequestSpec",
    "SizeConfig",
    "Step",
    "refused",
]
