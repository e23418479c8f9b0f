"""Who owns every slot, and nothing else: blind to order, so any allocator can be held against it.

The harness tells it what the subject handed out and took back; it answers with what is wrong, as
pairs of an invariant (end of `bugs.md`) and a message. It never raises. A page is available, parked
(freed in an open group) or owned; a slot of an owned page has an owner or none (the tail of a
half-filled page, dropped draft tokens).
"""

from collections.abc import Hashable, Iterable, Sequence

LedgerFault = tuple[str, str]


class Ledger:
    """Pages `1..num_pages` (`spec/core.md` §1); for the token allocator `page_size` is 1."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.resize(num_pages)

    def resize(self, num_pages: int) -> None:
        """Another number of pages, and `clear`."""
        self.num_pages = num_pages
        self.clear()

    def clear(self) -> None:
        """Everything is available again and nobody owns anything."""
        self._available = set(range(1, self.num_pages + 1))
        self._owned: set[int] = set()
        self._parked: set[int] = set()
        self._parked_by_slots: set[int] = set()  # those that a slot free may name again
        self._issued: set[int] = set()
        self._owner: dict[int, Hashable] = {}

    # --- what the harness tells ---

    def issue(self, owner: Hashable, slots: Iterable[int]) -> list[LedgerFault]:
        """The subject gave `slots` to `owner`: I2, I3, I5, I34. A slot at fault keeps its owner."""
        slots = list(slots)
        given = set(slots)
        fresh = {slot // self.page_size for slot in given} - self._owned
        once_each = len(given) == len(slots)
        if once_each and fresh <= self._available and self._owner.keys().isdisjoint(given):
            self._available -= fresh
            self._owned |= fresh
            self._issued |= fresh
            self._owner.update(dict.fromkeys(slots, owner))
            return []
        return self._issue_each(owner, slots)

    def _issue_each(self, owner: Hashable, slots: list[int]) -> list[LedgerFault]:
        faults: list[LedgerFault] = []
        given: set[int] = set()
        for slot in slots:
            page = slot // self.page_size
            if slot in given:
                faults.append(("I5", f"slot {slot} is in one result twice"))
            elif slot in self._owner:
                text = f"slot {slot} went to {owner!r} while {self._owner[slot]!r} has it"
                faults.append(("I34", text))
            elif page in self._owned:
                self._owner[slot] = owner
            elif page in self._available:
                self._available.remove(page)
                self._owned.add(page)
                self._issued.add(page)
                self._owner[slot] = owner
            elif page in self._parked:
                faults.append(("I2", f"slot {slot} went to {owner!r}: {self._describe(page)}"))
            else:
                faults.append(("I3", f"slot {slot} went to {owner!r}: {self._describe(page)}"))
            given.add(slot)
        return faults

    def drop(self, owner: Hashable, slots: Iterable[int]) -> list[LedgerFault]:
        """`owner` rejects these (draft tokens); their page stays owned and may issue them again."""
        faults: list[LedgerFault] = []
        for slot in slots:
            holder = self._owner.get(slot)
            if slot not in self._owner or holder != owner:
                faults.append(("I34", f"{owner!r} drops slot {slot}, which {holder!r} has"))
            else:
                del self._owner[slot]
        return faults

    def release_slots(self, slots: Iterable[int]) -> list[LedgerFault]:
        """The subject took back the whole pages of these slots: I3, I4, I5."""
        return self.release_pages({slot // self.page_size for slot in slots})

    def release_pages(self, pages: Iterable[int]) -> list[LedgerFault]:
        """The subject took back exactly these pages: I3, I4, I5."""
        return self._leave_owners(pages, self._available)

    def park_slots(self, slots: Iterable[int]) -> list[LedgerFault]:
        """`release_slots` in an open group, whose slot frees may name a page again (§4)."""
        pages = {slot // self.page_size for slot in slots}
        faults = self._leave_owners(pages - self._parked_by_slots, self._parked)
        self._parked_by_slots |= pages & self._parked
        return faults

    def park_pages(self, pages: Iterable[int]) -> list[LedgerFault]:
        """`release_pages` in an open group."""
        return self._leave_owners(pages, self._parked)

    def unpark_all(self) -> None:
        """The group ended: what was parked is available."""
        self._available |= self._parked
        self._parked.clear()
        self._parked_by_slots.clear()

    def _leave_owners(self, pages: Iterable[int], place: set[int]) -> list[LedgerFault]:
        faults: list[LedgerFault] = []
        for page in pages:
            if page not in self._owned:
                text = f"page {page} was taken back: {self._describe(page)}"
                faults.append((self._release_invariant(page), text))
                continue
            self._owned.remove(page)
            place.add(page)
            for slot in range(page * self.page_size, (page + 1) * self.page_size):
                self._owner.pop(slot, None)
        return faults

    def _release_invariant(self, page: int) -> str:
        if page == 0:
            return "I3"
        return "I5" if page in self._issued else "I4"

    def _describe(self, page: int) -> str:
        if page == 0:
            return "page 0 is reserved"
        if not 0 < page <= self.num_pages:
            return f"page {page} is not in 1..{self.num_pages}"
        if page in self._owned:
            held = range(page * self.page_size, (page + 1) * self.page_size)
            owners = {repr(self._owner[slot]) for slot in held if slot in self._owner}
            return f"page {page} is owned by {', '.join(sorted(owners)) or 'nobody in particular'}"
        if page in self._parked:
            return f"page {page} is parked in the open group"
        never = "" if page in self._issued else " and was never issued"
        return f"page {page} is available{never}"

    # --- what the harness asks ---

    def owner_of(self, slot: int) -> Hashable | None:
        """Who has this slot; None if nobody does."""
        return self._owner.get(slot)

    def owns(self, page: int) -> bool:
        """Whether somebody has this page."""
        return page in self._owned

    def num_available_pages(self) -> int:
        """How many pages can be handed out."""
        return len(self._available)

    def available_pages(self) -> frozenset[int]:
        """The pages that can be handed out: what free list and staged list must hold together."""
        return frozenset(self._available)

    def owned_pages(self) -> frozenset[int]:
        """The pages that are out."""
        return frozenset(self._owned)

    def parked_pages(self) -> frozenset[int]:
        """The pages freed in the open group."""
        return frozenset(self._parked)

    def issued_pages(self) -> frozenset[int]:
        """The pages handed out at least once since `clear`."""
        return frozenset(self._issued)

    def faults(
        self,
        observed_free: Sequence[int],
        observed_staged: Sequence[int],
        observed_parked: Iterable[int] | None = None,
    ) -> list[LedgerFault]:
        """Census: hold the subject's lists of page ids against the owners. Order is not looked at.

        `observed_parked` is None where the subject doesn't show it; a page may repeat there, since
        several slot frees of a group may name it.
        """
        available = [*observed_free, *observed_staged]
        parked = self._parked if observed_parked is None else set(observed_parked)
        once_each = len(available) == len(self._available)  # with equal sets: no page twice
        if once_each and parked == self._parked and self._available == set(available):
            return []
        return self._census(available, parked)

    def _census(self, available: list[int], parked: set[int]) -> list[LedgerFault]:
        faults: list[LedgerFault] = []
        seen: set[int] = set()
        for page in [*available, *parked]:
            if page in seen:
                faults.append(("I1", f"page {page} is listed twice"))
            seen.add(page)
        for page in sorted(seen):
            if not 0 < page <= self.num_pages:
                faults.append(("I3", f"{self._describe(page)}, and is listed as free"))
            elif page in self._owned:
                faults.append(("I34", f"{self._describe(page)}, and is listed as free"))
        for page in sorted(self._available.difference(available)):
            faults.append(("I2", f"{self._describe(page)}, and is in no free list"))
        for page in sorted(self._parked - parked):
            faults.append(("I2", f"{self._describe(page)}, and isn't among the parked"))
        for page in sorted(self._parked.intersection(available)):
            faults.append(("I2", f"{self._describe(page)}, and is listed as free"))
        for page in sorted(self._available & parked):
            faults.append(("I2", f"{self._describe(page)}, and is listed as parked"))
        return faults
