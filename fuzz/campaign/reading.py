"""How far a campaign is: a line for people, and one of JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz.campaign.coordinator import Campaign


def reading(campaign: Campaign) -> str:
    """One line."""
    seconds, steps = campaign.seconds, campaign.steps
    rate = steps / seconds if seconds else 0.0
    corpus = sum(map(len, campaign.entries.values()))
    return (
        f"{seconds:6.1f} s of {campaign.settings.seconds:g}  {steps:>10,} steps"
        f"  {rate:>7,.0f} steps/s  features {campaign.features:,}  corpus {corpus:,}"
        f"  findings {campaign.casebook.findings.total()}"
    )


def log_interval(campaign: Campaign) -> None:
    """Everything that is counted, as a line of the log."""
    seconds, findings = campaign.seconds, campaign.casebook.findings
    campaign.store.log(
        "interval",
        seconds=round(seconds, 2),
        steps=campaign.steps,
        steps_per_second=round(campaign.steps / seconds, 1) if seconds else 0.0,
        features={system: len(known) for system, known in campaign.known.items()},
        entries={system: len(paths) for system, paths in campaign.entries.items()},
        findings=findings.total(),
        kinds=len(+findings),
        restarts=campaign.restarts,
        unsaved=len(campaign.store.unsaved),
        lanes={
            name: {
                "steps": track.tally.steps,
                "seconds": round(track.tally.seconds, 2),
                "new": track.new,
            }
            for name, track in campaign.tracks.items()
        },
    )
