"""Tests of documents and queries: a seed always gives the same ones, and every query finds something."""

import collections
import math
import re
import unittest
from pathlib import Path

from corpus import BATCH, TENANTS, Corpus

SEED = 11
DOCUMENTS = 20_000


def documents_of(corpus, tenant):
    len_ = tenant.documents(corpus.documents)
    for first in range(0, len_, BATCH):
        yield from corpus.batch(tenant, first, min(BATCH, len_ - first))


class Documents(unittest.TestCase):
    def test_the_same_seed_gives_the_same_whatever_was_made_before(self):
        batches = Corpus(SEED, DOCUMENTS).batches()
        forwards, backwards = Corpus(SEED, DOCUMENTS), Corpus(SEED, DOCUMENTS)
        made = [forwards.batch(*batch) for batch in batches[:4]]
        self.assertEqual(made, [backwards.batch(*batch) for batch in reversed(batches[:4])][::-1])
        self.assertEqual(forwards.queries(), backwards.queries())
        self.assertNotEqual(made[0], Corpus(SEED + 1, DOCUMENTS).batch(*batches[0]))

    def test_batches_hold_each_document_once(self):
        corpus = Corpus(SEED, 20_300)
        seen = collections.Counter(doc["id"] for batch in corpus.batches() for doc in corpus.batch(*batch))
        self.assertEqual(len(seen), 20_300)
        self.assertEqual(set(seen.values()), {1})
        self.assertEqual(sum(tenant.percent for tenant in TENANTS), 100)

    def test_words_follow_the_law_of_zipf(self):
        corpus = Corpus(SEED, DOCUMENTS)
        used = collections.Counter()
        for document in documents_of(corpus, TENANTS[1]):
            used.update(document["body"].split())
        # 4,000 documents of 50 words: rank 1 is drawn about 19,000 times, rank 100 about 190 times.
        for rank in (2, 10, 100):
            expected = used[corpus.words[0]] / rank
            self.assertAlmostEqual(used[corpus.words[rank - 1]], expected, delta=5 * math.sqrt(expected))

    def test_words_differ(self):
        words = Corpus(SEED, DOCUMENTS).words
        self.assertEqual(len(words), len(set(words)))


class Queries(unittest.TestCase):
    def test_each_tenant_has_a_match(self):
        corpus = Corpus(SEED, DOCUMENTS)
        queries = corpus.queries()
        words = {row["word"] for row in queries["words.csv"]}
        for tenant in TENANTS[-5:]:
            documents = list(documents_of(corpus, tenant))
            words_of_tenant = set().union(*(document["body"].split() for document in documents))
            self.assertLessEqual(words, words_of_tenant, f"{tenant.name}, seed {SEED}")
            prices = sorted(document["price"] for document in documents)
            for row in queries["prices.csv"]:
                found = sum(row["least"] <= price <= row["most"] for price in prices)
                self.assertGreater(found, 0, f"{tenant.name}, {row}, seed {SEED}")

    def test_too_few_documents_are_named(self):
        with self.assertRaisesRegex(ValueError, "100 documents are too few: the smallest tenant has 1"):
            Corpus(SEED, 100).queries()


class Suite(unittest.TestCase):
    def test_it_names_the_tenants_and_their_sizes(self):
        suite = (Path(__file__).parent.parent / "solr.yaml").read_text()
        named = re.findall(r"^  - \{name: (\w+), size: (\d+), weight: \d+\}$", suite, re.MULTILINE)
        self.assertEqual(named, [(tenant.name, str(tenant.percent)) for tenant in TENANTS])
        # All collections are counted together, once for each node.
        self.assertEqual(suite.count("collection=" + ",".join(tenant.name for tenant in TENANTS) + '"'), 2)


if __name__ == "__main__":
    unittest.main()
