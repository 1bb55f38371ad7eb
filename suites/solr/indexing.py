"""Indexes the documents: collections, batches from several processes, one commit, and a check.

The check queries each node separately, and each node uses its own replicas. It therefore finds an incomplete replica,
which a query to the cluster would find only by luck. Counts are exact: the documents of each tenant, and those with
each of some words.
"""

import argparse
import collections
import concurrent.futures
import functools
import http.client
import io
import itertools
import json
import os
import random
import sys
import time
import urllib.parse
import zipfile
from pathlib import Path

from corpus import TENANTS, Corpus

CONFIGSET = "goods"
# One on each node: either can serve a query, so a second attempt has another node to go to.
REPLICAS = 2
# Limit for any response, even while a node with a full heap indexes.
RESPONSE_LIMIT_S = 120.0
# A commit waits until all documents are searchable, possibly millions.
COMMIT_LIMIT_S = 600.0
PROGRESS_EVERY_S = 5.0
# Number of words of each tenant whose count is checked.
WORDS_CHECKED = 25


class SolrError(Exception):
    """A node is unreachable or its response is wrong; the message names the node, the request and the response."""


class Node:
    """A node, over one connection that opens on first use."""

    def __init__(self, address):
        self.address = address
        self._connection = None

    def ask(self, path, parameters=(), body=None, content_type="application/json", limit_s=RESPONSE_LIMIT_S):
        """Sends a request, as a POST if it has a body, and returns the response as JSON."""
        url = f"/solr/{path}?" + urllib.parse.urlencode(parameters)
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.address)
        try:
            # An open connection keeps its old timeout otherwise.
            self._connection.timeout = limit_s
            if self._connection.sock is not None:
                self._connection.sock.settimeout(limit_s)
            method = "GET" if body is None else "POST"
            self._connection.request(method, url, body, {} if body is None else {"Content-Type": content_type})
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise SolrError(f"node {self.address} sent no response to {url}: {error!r}") from error
        if response.status != 200:
            said = text[:500].decode(errors="replace")
            raise SolrError(f"node {self.address} responded to {url} with {response.status}: {said}")
        return json.loads(text)

    def found(self, tenant, query):
        """The number of documents that match a query."""
        response = self.ask(f"{tenant}/select", {"q": query, "rows": 0})
        return response["response"]["numFound"]


def upload_configset(node, folder):
    """Uploads the configuration of the collections to the cluster."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)
    parameters = {"action": "UPLOAD", "name": CONFIGSET, "overwrite": "true"}
    node.ask("admin/configs", parameters, packed.getvalue(), "application/octet-stream")


def make_collections(node):
    """Deletes and creates the collection of each tenant."""
    there = node.ask("admin/collections", {"action": "LIST"})["collections"]
    for tenant in TENANTS:
        if tenant.name in there:
            node.ask("admin/collections", {"action": "DELETE", "name": tenant.name})
        parameters = {
            "action": "CREATE",
            "name": tenant.name,
            "numShards": tenant.shards,
            "replicationFactor": REPLICAS,
            "collection.configName": CONFIGSET,
            "waitForFinalState": "true",
        }
        node.ask("admin/collections", parameters)


# State of each sending process, set once by `begin_sending`.
sending = {}


def begin_sending(seed, documents, addresses, words):
    """Initializes a process of the pool."""
    nodes = [Node(address) for address in addresses]
    # Processes start at different nodes.
    start = os.getpid() % len(nodes)
    turns = itertools.cycle(nodes[start:] + nodes[:start])
    sending.update(corpus=Corpus(seed, documents), nodes=turns, words=words)


def send(batch):
    """Makes and sends one batch. Returns the tenant, its number of documents, and that with each checked word."""
    tenant, first, len_ = batch
    made = sending["corpus"].batch(tenant, first, len_)
    next(sending["nodes"]).ask(f"{tenant.name}/update", body=json.dumps(made).encode())
    held = collections.Counter()
    for document in made:
        held.update(sending["words"].intersection(document["body"].split()))
    return tenant.name, len_, held


def index(corpus, addresses, processes, say):
    """Sends everything and commits. Returns, by tenant, the number of documents with each checked word."""
    batches = corpus.batches()
    total = sum(len_ for _, _, len_ in batches)
    checked = checked_words(corpus)
    held = {tenant.name: collections.Counter() for tenant in TENANTS}
    began = shown = time.monotonic()
    sent = 0
    arguments = (corpus.seed, corpus.documents, addresses, checked)
    with concurrent.futures.ProcessPoolExecutor(processes, initializer=begin_sending, initargs=arguments) as pool:
        # Executor.map would keep the order of the results, which does not matter here.
        waiting = {pool.submit(send, batch) for batch in batches}
        try:
            for done in concurrent.futures.as_completed(waiting):
                name, len_, words = done.result()
                held[name].update(words)
                sent += len_
                if time.monotonic() - shown >= PROGRESS_EVERY_S or sent == total:
                    shown = time.monotonic()
                    say(f"{sent:,} of {total:,} documents, {sent / (shown - began):,.0f} a second")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    began = time.monotonic()
    node = Node(addresses[0])
    for tenant in TENANTS:
        # An empty list of documents: the commit alone.
        node.ask(f"{tenant.name}/update", {"commit": "true"}, b"[]", limit_s=COMMIT_LIMIT_S)
    say(f"committed in {time.monotonic() - began:.1f} s")
    return held


def checked_words(corpus):
    """The words to count: frequent and rare ones among the words in queries."""
    words = corpus.known_words()
    return frozenset(random.Random(f"{corpus.seed}/checked").sample(words, min(WORDS_CHECKED, len(words))))


def check(corpus, addresses, held):
    """Compares the counts of each node with `held` (of `index`, or empty). Raises SolrError with all differences."""
    wrong = []
    for node, tenant in itertools.product(map(Node, addresses), TENANTS):
        expected = {"*:*": tenant.documents(corpus.documents)}
        expected |= {f"body:{word}": held[tenant.name][word] for word in checked_words(corpus) if held}
        for query, count in expected.items():
            found = node.found(tenant.name, query)
            if found != count:
                wrong.append(f"node {node.address}, {tenant.name}, {query}: {found} documents, expected {count}")
    if wrong:
        raise SolrError("\n".join(wrong))


def arguments():
    parser = argparse.ArgumentParser(prog="index", description="Index documents in the SolrCloud, and check them.")
    add = parser.add_argument
    add("--node", action="append", required=True, metavar="HOST:PORT", help="a node; suites/solr/index passes all")
    add("--documents", type=int, default=200_000, help="number of documents of all tenants together (%(default)s)")
    add("--seed", type=int, default=1, help="seed of documents and queries (%(default)s)")
    add("--processes", type=int, default=2, help="number of processes that make and send documents (%(default)s)")
    add("--queries", type=Path, metavar="FOLDER", help="only write the CSV files of the queries to this folder")
    add("--check", action="store_true", help="only check that each node has all documents")
    given = parser.parse_args()
    if given.documents < 100 or given.documents % 100:
        parser.error(f"--documents {given.documents}: expected a multiple of 100, because tenants have whole percents")
    if given.processes < 1:
        parser.error("--processes must be at least 1")
    return given


def main():
    given = arguments()
    corpus = Corpus(given.seed, given.documents)
    say = functools.partial(print, flush=True)
    try:
        if given.queries:
            corpus.write_queries(given.queries)
            return
        if not given.check:
            node = Node(given.node[0])
            upload_configset(node, Path(__file__).resolve().parent / "configset")
            make_collections(node)
            say(f"{len(TENANTS)} collections, seed {given.seed}")
        held = {} if given.check else index(corpus, given.node, given.processes, say)
        check(corpus, given.node, held)
    except (SolrError, ValueError) as error:
        sys.exit(f"suites/solr/index: {error}")
    print(f"each of {len(given.node)} nodes finds all {corpus.documents:,} documents")


if __name__ == "__main__":
    main()
