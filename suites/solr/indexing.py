"""Fills the cluster: collections, documents in batches from several processes, one commit, and a check.

The check asks each node by itself, and each answers from its own replicas: so it finds a replica that lacks
something, which a question to the cluster would find only by luck. Counts are exact: how many documents each tenant
has, and how many of them hold each of some words, counted while they were made.
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
# Of both nodes: a question is answered by either, and a second attempt has somewhere to go.
REPLICAS = 2
# An answer to anything, indexing behind a full heap included.
ANSWER_LIMIT_S = 120.0
# A commit waits for all that was sent to be searchable, millions of documents perhaps.
COMMIT_LIMIT_S = 600.0
PROGRESS_EVERY_S = 5.0
# Words of each tenant whose count is checked.
WORDS_CHECKED = 25


class SolrError(Exception):
    """A node refused, or answered wrongly; the message says which one, what was asked and what it said."""


class Node:
    """A node, by one connection that is made when it is first needed."""

    def __init__(self, address):
        self.address = address
        self._connection = None

    def ask(self, path, parameters=(), body=None, content_type="application/json", limit_s=ANSWER_LIMIT_S):
        """The answer, as JSON; a body is posted."""
        url = f"/solr/{path}?" + urllib.parse.urlencode(parameters)
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.address)
        try:
            # Kept for the next question as well, when there is a connection already.
            self._connection.timeout = limit_s
            if self._connection.sock is not None:
                self._connection.sock.settimeout(limit_s)
            method = "GET" if body is None else "POST"
            self._connection.request(method, url, body, {} if body is None else {"Content-Type": content_type})
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise SolrError(f"node {self.address} did not answer {url}: {error!r}") from error
        if answer.status != 200:
            said = text[:500].decode(errors="replace")
            raise SolrError(f"node {self.address} answered {url} with {answer.status}: {said}")
        return json.loads(text)

    def found(self, tenant, query):
        """How many documents answer a query."""
        answer = self.ask(f"{tenant}/select", {"q": query, "rows": 0})
        return answer["response"]["numFound"]


def upload_configset(node, folder):
    """Gives the cluster the configuration of the collections."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)
    parameters = {"action": "UPLOAD", "name": CONFIGSET, "overwrite": "true"}
    node.ask("admin/configs", parameters, packed.getvalue(), "application/octet-stream")


def make_collections(node):
    """Makes each tenant's collection anew."""
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


# What each sending process keeps: made once, by `begin_sending`.
sending = {}


def begin_sending(seed, documents, addresses, words):
    """Readies a process of the pool."""
    nodes = [Node(address) for address in addresses]
    # Processes begin at different nodes.
    start = os.getpid() % len(nodes)
    turns = itertools.cycle(nodes[start:] + nodes[:start])
    sending.update(corpus=Corpus(seed, documents), nodes=turns, words=words)


def send(batch):
    """Makes one batch and sends it. Returns the tenant, how many documents, and how many hold each checked word."""
    tenant, first, len_ = batch
    made = sending["corpus"].batch(tenant, first, len_)
    next(sending["nodes"]).ask(f"{tenant.name}/update", body=json.dumps(made).encode())
    held = collections.Counter()
    for document in made:
        held.update(sending["words"].intersection(document["body"].split()))
    return tenant.name, len_, held


def index(corpus, addresses, processes, say):
    """Sends everything and commits. Returns, by tenant, how many documents hold each checked word."""
    batches = corpus.batches()
    total = sum(len_ for _, _, len_ in batches)
    checked = checked_words(corpus)
    held = {tenant.name: collections.Counter() for tenant in TENANTS}
    began = shown = time.monotonic()
    sent = 0
    arguments = (corpus.seed, corpus.documents, addresses, checked)
    with concurrent.futures.ProcessPoolExecutor(processes, initializer=begin_sending, initargs=arguments) as pool:
        # Executor.map would keep all answers in order; these are few and small, so what is first done is counted first.
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
    """The words that are counted: frequent and rare ones of those that are asked for."""
    words = corpus.known_words()
    return frozenset(random.Random(f"{corpus.seed}/checked").sample(words, min(WORDS_CHECKED, len(words))))


def check(corpus, addresses, held):
    """Asks each node for counts; `held` as `index` returns it, or empty. Raises SolrError with all that differ."""
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
    parser = argparse.ArgumentParser(prog="index", description="Fill the running SolrCloud; check that all is found.")
    add = parser.add_argument
    add("--node", action="append", required=True, metavar="HOST:PORT", help="the nodes; suites/solr/index gives them")
    add("--documents", type=int, default=200_000, help="of all tenants together (%(default)s)")
    add("--seed", type=int, default=1, help="of documents and questions (%(default)s)")
    add("--processes", type=int, default=2, help="that make and send documents (%(default)s)")
    add("--questions", type=Path, metavar="FOLDER", help="only write the CSV files of the battery there")
    add("--check", action="store_true", help="only ask each node whether it has all documents")
    given = parser.parse_args()
    if given.documents < 100 or given.documents % 100:
        parser.error(f"--documents {given.documents}: expected a multiple of 100, for tenants have whole per cents")
    if given.processes < 1:
        parser.error("--processes must be at least 1")
    return given


def main():
    given = arguments()
    corpus = Corpus(given.seed, given.documents)
    say = functools.partial(print, flush=True)
    try:
        if given.questions:
            corpus.write_questions(given.questions)
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
