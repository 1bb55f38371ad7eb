"""Checks exactly-once storage: every acknowledged batch must be stored once, every other batch once or not at all."""

from dataclasses import dataclass, field

from harness.otlp import BATCH_ROWS


class CheckError(Exception):
    """A check failed: data is lost or duplicated, or the server does not report a failure."""


@dataclass
class DeliveryReport:
    """The lines that one part of a run has printed, and the batches that its senders have sent."""

    name: str
    seed: int
    lines: list = field(default_factory=list)
    acknowledged_ids: set = field(default_factory=set)
    # By ID.
    sent_batches: dict = field(default_factory=dict)

    def add_line(self, text):
        self.lines.append(text)
        print(f"{self.name}: {text}", flush=True)

    def table_ids(self, table):
        """The IDs of a table's acknowledged batches, and of all batches that were sent to it."""
        sent_ids = {id for id, batch in self.sent_batches.items() if batch.table == table}
        return self.acknowledged_ids & sent_ids, sent_ids


def check_batches(report, acknowledged_ids, row_counts, reader):
    """Checks that acknowledged batches are stored once, others once or not at all. `row_counts`: rows by batch ID."""
    lost = [id for id in acknowledged_ids if not row_counts.get(id)]
    wrong = [(id, rows) for id, rows in row_counts.items() if rows not in (0, BATCH_ROWS)]
    if lost or wrong:
        raise CheckError(
            f"read by {reader}: {len(lost)} batches are lost ({lost[:3]}), {len(wrong)} batches have other than "
            f"{BATCH_ROWS} rows ({wrong[:3]}); seed {report.seed}"
        )


def check_table(report, table, row_counts, reader):
    """Checks the batches of a whole table, which must contain no other batches. Returns the number of acknowledged
    batches, and of stored batches that were not acknowledged."""
    acknowledged_ids, sent_ids = report.table_ids(table)
    check_batches(report, acknowledged_ids, row_counts, reader)
    unknown = set(row_counts) - sent_ids
    if unknown:
        raise CheckError(f"read by {reader}: {table} has {len(unknown)} batches never sent ({sorted(unknown)[:3]})")
    return len(acknowledged_ids), len(set(row_counts) - acknowledged_ids)
