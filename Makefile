# `make` lists the targets. Every command here also works by hand.
#
# `make test` and `make demo` use the same profile and the same features, so a newcomer compiles the
# dependencies once. CARGO_TARGET_DIR is respected.
#
# curtail-sql is built separately. It needs more features of tokio, serde and others, so a common build would compile
# everything else twice.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo build release sql test lint bench bench-solr

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Watch Curtail cut a latency tail on this machine
	$(CARGO) run --locked --package curtail -- demo

build: ## Build everything, with checks on
	$(CARGO) build --locked --workspace

# Only the two binaries depend on the revision, so a commit compiles little again.
release: ## Build the release binaries, without curtail-sql
	CURTAIL_REVISION="$$(git rev-parse --short=12 HEAD 2>/dev/null)" $(CARGO) build --locked --workspace --exclude curtail-sql --bins --release

# It alone links DataFusion, which takes longer to compile than everything else.
sql: ## Build curtail-sql, the program behind `curtail sql`
	$(CARGO) build --locked --release --package curtail-sql
	@echo "$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/curtail-sql"

test: ## Check the project rules, then run all tests
	$(CARGO) run --locked --quiet --package xtask -- tidy
	$(CARGO) test --locked --workspace --exclude curtail-sql
	$(CARGO) test --locked --package curtail-sql
	@if command -v python3 >/dev/null; then \
		(cd bench && python3 -m unittest --quiet) && (cd suites/solr && python3 -m unittest --quiet); \
		else echo "no python3: the tests of bench/ and suites/solr/ are skipped"; fi

lint: ## Check format, lints and the links of the documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --workspace --no-deps --document-private-items

bench: ## Measure every claim next to peers, on this machine (more than an hour)
	bench/run

# Needs Java 17 and Python 3; the first run downloads Solr from Maven Central.
bench-solr: ## Measure a real SolrCloud with a node that stalls, with and without hedging (15 minutes)
	$(CARGO) run --locked --package curtail -- bench suite suites/solr.yaml
