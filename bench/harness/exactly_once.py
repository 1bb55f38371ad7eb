"""What was sent, what of it was acknowledged, and whether that is there once."""

from dataclasses import dataclass, field

from harness.otlp import ROWS_OF_A_BATCH


class Wrong(Exception):
    """Something is lost, doubled, or not said."""


@dataclass
class Found:
    """What came of one part, and of what was sent meanwhile."""

    name: str
    seed: int
    lines: list = field(default_factory=list)
    # IDs.
    acknowledged: set = field(default_factory=set)
    # Batches by their IDs.
    sent: dict = field(default_factory=dict)

    def say(self, text):
        self.lines.append(text)
        print(f"{self.name}: {text}", flush=True)

    def of(self, table):
        """The IDs of what was acknowledged for a table, and of all that was sent to it."""
        sent = {id for id, batch in self.sent.items() if batch.table == table}
        return self.acknowledged & sent, sent


def compare(found, acknowledged, counted, by):
    """What was acknowledged is there once; the rest once or not at all. `counted`: rows by the ID of their batch."""
    lost = [id for id in acknowledged if not counted.get(id)]
    torn = [id for id, rows in counted.items() if rows not in (0, ROWS_OF_A_BATCH)]
    if lost or torn:
        odd = [(id, counted[id]) for id in torn[:3]]
        raise Wrong(
            f"by {by} {len(lost)} batches are lost ({lost[:3]}), {len(torn)} are not there once ({odd}); seed {found.seed}"
        )


def compare_table(found, table, counted, by):
    """The same of a whole table, in which there is nothing that nobody has sent. Returns how many of its batches were
    acknowledged, and how many others are there."""
    acknowledged, sent = found.of(table)
    compare(found, acknowledged, counted, by)
    unknown = set(counted) - sent
    if unknown:
        raise Wrong(f"by {by} {table} has {len(unknown)} batches that nobody has sent ({sorted(unknown)[:3]})")
    return len(acknowledged), len(set(counted) - acknowledged)
