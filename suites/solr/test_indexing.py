"""Tests of the check against nodes with too few documents, nodes with errors, and missing nodes."""

import http.server
import json
import socket
import threading
import unittest
import urllib.parse

import indexing
from corpus import TENANTS, Corpus

CORPUS = Corpus(seed=3, documents=20_000)


class FakeNode(http.server.ThreadingHTTPServer):
    """Responds with counts by (tenant, query): all documents, 7 with any word, and the exceptions in `wrong`."""

    def __init__(self, wrong=None):
        super().__init__(("127.0.0.1", 0), CannedResponses)
        self.wrong = wrong or {}
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def stop(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class CannedResponses(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        tenant = url.path.split("/")[2]
        query = urllib.parse.parse_qs(url.query)["q"][0]
        all_of = {tenant.name: tenant.documents(CORPUS.documents) for tenant in TENANTS}
        usual = all_of[tenant] if query == "*:*" else 7
        found = self.server.wrong.get((tenant, query), usual)
        self.send_response(200 if found is not None else 503)
        self.end_headers()
        self.wfile.write(json.dumps({"response": {"numFound": found}}).encode())

    def log_message(self, *_):
        pass


class Check(unittest.TestCase):
    def node(self, wrong=None):
        node = FakeNode(wrong)
        self.addCleanup(node.stop)
        return node.address

    def held(self):
        return {tenant.name: {word: 7 for word in indexing.checked_words(CORPUS)} for tenant in TENANTS}

    def test_nodes_that_have_all_pass(self):
        indexing.check(CORPUS, [self.node(), self.node()], self.held())

    def test_every_count_that_differs_is_named_with_its_node(self):
        word = sorted(indexing.checked_words(CORPUS))[0]
        good, bad = self.node(), self.node({("fern", "*:*"): 199, ("amber", f"body:{word}"): 6})
        with self.assertRaises(indexing.SolrError) as raised:
            indexing.check(CORPUS, [good, bad], self.held())
        self.assertEqual(
            str(raised.exception).splitlines(),
            [
                f"node {bad}, amber, body:{word}: 6 documents, expected 7",
                f"node {bad}, fern, *:*: 199 documents, expected 200",
            ],
        )

    def test_a_node_that_refuses_is_named_with_what_it_said(self):
        bad = self.node({("amber", "*:*"): None})
        with self.assertRaisesRegex(indexing.SolrError, f"node {bad} responded to /solr/amber/select.* with 503: .*null"):
            indexing.check(CORPUS, [bad], {})

    def test_a_node_that_is_not_there_is_named(self):
        # A port that is bound and not listened on refuses connections, and nobody else gets it meanwhile.
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{bound.getsockname()[1]}"
            with self.assertRaisesRegex(indexing.SolrError, f"node {address} sent no response to /solr/amber/select"):
                indexing.check(CORPUS, [address], {})


if __name__ == "__main__":
    unittest.main()
