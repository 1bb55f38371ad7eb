"""The documents and the queries: goods of a shop, made from a seed.

The same seed gives the same documents and queries, byte for byte, in whatever order batches are made. Any process may
therefore make any batch, and count the documents with a word without the server.

Words. A vocabulary of 20,000 made-up words. The word of rank r is drawn in proportion to 1 / r (Zipf's law), as in
written language: some words are in most documents, most words in few. Titles have 3 to 9 words, bodies 20 to 80.

There are 24 categories, by the same law. Prices (cents) are lognormal with a median of 20.00. Times (UTC) are uniform
over two years.

Tenants. Each has its own collection, and sizes differ widely, as for real customers. The cost of a query depends on the
documents of its tenant alone. Large tenants have two shards, small ones one. With a field `tenant` in one large
collection, all tenants would pay for the largest, and a report by size would show nothing.
"""

import bisect
import csv
import itertools
import math
import random
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

VOCABULARY = 20_000
CATEGORIES = 24
BATCH = 500
TITLE_WORDS = (3, 9)
BODY_WORDS = (20, 80)
PRICE_MEDIAN = 2_000
PRICE_SIGMA = 1.1
FIRST_OFFER = datetime(2023, 1, 1, tzinfo=timezone.utc)
OFFERS_LAST = timedelta(days=730)
# Number of queries of each kind.
QUERIES = 2_000
# Queries use a word only if the smallest tenant is expected to have this many documents with it. With fewer, it could
# have none by chance, and the suite treats an empty result as an error. Here that chance is e to the power of -30.
DOCUMENTS_WITH_WORD_MIN = 30


@dataclass(frozen=True)
class Tenant:
    """A customer with a collection of its own."""

    name: str
    # Share of all documents.
    percent: int
    shards: int

    def documents(self, total):
        """The number of its documents, of `total`."""
        return total * self.percent // 100


TENANTS = (
    Tenant("amber", 70, 2),
    Tenant("birch", 20, 2),
    Tenant("cedar", 5, 2),
    *(Tenant(name, 1, 1) for name in ("daisy", "elder", "fern", "grass", "hazel")),
)


class Corpus:
    """The documents and the queries of one seed."""

    def __init__(self, seed, documents):
        """`documents`: their number, of all tenants together."""
        self.seed = seed
        self.documents = documents
        self.words = vocabulary(random.Random(f"{seed}/words"))
        self.categories = self.words[-CATEGORIES:]
        self._word_weights = zipf(VOCABULARY)
        self._category_weights = zipf(CATEGORIES)

    def batches(self):
        """All batches as (tenant, its first document, number of documents), the tenants mixed."""
        of_tenants = [
            [(tenant, first, min(BATCH, len_ - first)) for first in range(0, len_, BATCH)]
            for tenant, len_ in ((tenant, tenant.documents(self.documents)) for tenant in TENANTS)
        ]
        mixed = list(itertools.chain.from_iterable(of_tenants))
        random.Random(f"{self.seed}/batches").shuffle(mixed)
        return mixed

    def batch(self, tenant, first, len_):
        """The documents of one batch."""
        rng = random.Random(f"{self.seed}/{tenant.name}/{first}")
        return [self._document(rng, f"{tenant.name}-{nth}") for nth in range(first, first + len_)]

    def _document(self, rng, name):
        price = round(PRICE_MEDIAN * math.exp(rng.gauss(0.0, PRICE_SIGMA)))
        offered_at = FIRST_OFFER + rng.random() * OFFERS_LAST
        return {
            "id": name,
            "title": " ".join(self._draw(rng, rng.randint(*TITLE_WORDS))),
            "body": " ".join(self._draw(rng, rng.randint(*BODY_WORDS))),
            "category": rng.choices(self.categories, cum_weights=self._category_weights)[0],
            "price": price,
            "offered_at": offered_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _draw(self, rng, len_):
        return rng.choices(self.words, cum_weights=self._word_weights, k=len_)

    def known_words(self):
        """The words that every tenant has often enough for queries, the most frequent first."""
        smallest = min(tenant.documents(self.documents) for tenant in TENANTS)
        total = self._word_weights[-1]
        mean_len = sum(BODY_WORDS) / 2
        # The word of rank r has the share 1 / (r · total) of all words. Nearly each occurrence is in another document.
        ranks = math.floor(smallest * mean_len / total / DOCUMENTS_WITH_WORD_MIN)
        if ranks < 1:
            raise ValueError(f"{self.documents} documents are too few: the smallest tenant has {smallest} of them")
        return self.words[: min(ranks, VOCABULARY)]

    def queries(self):
        """Rows of values, by the name of the CSV file; each row is for one request."""
        rng = random.Random(f"{self.seed}/questions")
        words = self.known_words()
        # Users search for rare words more often than texts use them.
        terms = [{"word": rng.choice(words)} for _ in range(QUERIES)]
        ranges = []
        for _ in range(QUERIES):
            # From a third to three times the median, wide and narrow: each has at least some 5 % of the documents.
            least = round(PRICE_MEDIAN * math.exp(rng.uniform(-1.1, 0.5)))
            ranges.append({"least": least, "most": round(least * math.exp(rng.uniform(0.3, 1.5)))})
        return {"words.csv": terms, "prices.csv": ranges}

    def write_queries(self, folder):
        """Writes the CSV files."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.queries().items():
            with (folder / name).open("w", newline="") as out:
                writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def zipf(len_):
    """Cumulative weights 1 + 1/2 + … of `len_` ranks."""
    return list(itertools.accumulate(1.0 / rank for rank in range(1, len_ + 1)))


def vocabulary(rng):
    """Different made-up words, the shorter ones more frequent."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = {}
    while len(words) < VOCABULARY:
        len_ = 2 + bisect.bisect((60, 2_000), len(words))
        words["".join(rng.choices(syllables, k=len_))] = None
    return list(words)
