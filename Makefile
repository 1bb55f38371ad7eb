# The front door: `make` lists what there is. Everything here can be run by hand as well.
#
# `make test` and `make demo` use the same profile and the same features, so a newcomer compiles the
# dependencies once. CARGO_TARGET_DIR is respected.
#
# curtail-sql is built by itself: it needs more of tokio, serde and others, and built together with it
# all the rest would be compiled once more.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo build release sql test lint bench bench-solr

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Watch a tail being found, explained and cut, on this machine
	$(CARGO) run --locked --package curtail -- demo

build: ## Build everything, with checks on
	$(CARGO) build --locked --workspace

release: ## Build the commands as they are shipped, but for curtail-sql
	$(CARGO) build --locked --workspace --exclude curtail-sql --bins --release

# It alone links DataFusion, which takes longer to compile than all the rest: only who wants it waits for it.
sql: ## Build curtail-sql, which `curtail sql` hands over to
	$(CARGO) build --locked --release --package curtail-sql
	@echo "$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/curtail-sql"

test: ## Check the rules of the house, then run all tests
	$(CARGO) run --locked --quiet --package xtask -- tidy
	$(CARGO) test --locked --workspace --exclude curtail-sql
	$(CARGO) test --locked --package curtail-sql
	@if command -v python3 >/dev/null; then \
		(cd bench && python3 -m unittest --quiet) && (cd suites/solr && python3 -m unittest --quiet); \
		else echo "no python3: the tests of bench/ and suites/solr/ are left out"; fi

lint: ## Check format, lints and the links of the documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --workspace --no-deps --document-private-items

bench: ## Measure, and hold against its peers, all that is claimed, on this machine (more than an hour)
	bench/run

# Java 17 and Python 3 are needed; Solr itself is fetched from Maven Central, once.
bench-solr: ## Measure a real SolrCloud with a node that stands still, with and without hedging (15 minutes)
	$(CARGO) run --locked --package curtail -- bench suite suites/solr.yaml
