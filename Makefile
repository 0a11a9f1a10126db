# Every target with a text behind ## shows in `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run build test race lint format vet staticcheck vulnerabilities generate bench conformance clients mcp-conformance fuzz crash clean

export GOTOOLCHAIN ?= local
export CGO_ENABLED ?= 0

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
# What a target passes on, as in: make conformance ARGS='-match approval'
ARGS ?=
# How long each fuzzer of `make fuzz` runs.
FUZZTIME ?= 30s
# How many kills `make crash` does.
KILLS ?= 300

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build and start the server with all its doors
	bin/mneme serve $(ARGS)

build: ## compile bin/mneme
	go build -trimpath -o bin/mneme ./cmd/mneme

test: ## run all tests; what was skipped is said at the end
	go run ./test/gotest -timeout 10m $(ARGS) ./...

race: ## run all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 go run ./test/gotest -race -timeout 20m $(ARGS) ./...

lint: format vet staticcheck vulnerabilities generate ## check format, vet, staticcheck, known vulnerabilities, generated files

format:
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$files" ]; then echo "lint: gofmt wants to change:"; echo "$$files"; exit 1; fi
	@echo "lint: gofmt ok"

vet:
	go vet ./...

staticcheck:
	go run $(STATICCHECK) ./...

# govulncheck exits 1 for trouble of its own, 3 for what it found.
vulnerabilities:
	@out=$$(go run $(GOVULNCHECK) ./... 2>&1); code=$$?; \
	if [ $$code -ne 0 ] && grep -q 'fetching vulnerabilities' <<< "$$out"; then \
		echo "lint: SKIPPED govulncheck: its database cannot be reached"; \
	else \
		echo "$$out"; exit $$code; \
	fi

# The state of the tree before and after must be the same, whatever it is.
generate:
	@state() { git diff | git hash-object --stdin; git status --porcelain; }; \
	if ! git rev-parse --git-dir > /dev/null 2>&1; then echo "lint: SKIPPED go generate: not a git checkout"; exit 0; fi; \
	before=$$(state); go generate ./... || exit 1; after=$$(state); \
	if [ "$$before" != "$$after" ]; then echo "lint: go generate changes files:"; git status --short; exit 1; fi; \
	echo "lint: go generate leaves no diff"

bench: ## measure start, memory, CPU and latency (not part of any test)
	go run ./test/bench $(ARGS)

conformance: ## play the recorded scenarios against the server
	go run ./test/conformance/run $(ARGS)

clients: ## run the official clients against the server (needs Node or Python)
	go run ./test/clients/run $(ARGS)

mcp-conformance: ## run the official MCP conformance suite, as `make clients` does too (needs Node 22)
	go run ./test/clients/run -suite mcp-conformance $(ARGS)

fuzz: ## run every fuzzer for FUZZTIME (30s)
	@set -e; grep -rHoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' client cmd internal protocol test 2> /dev/null | \
	while IFS=: read -r file func; do \
		name=$${func#func }; dir=$$(dirname "$$file"); \
		echo "== $$dir $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$dir"; \
	done

crash: ## kill the server KILLS (300) times and check what it kept
	MNEME_CRASH_KILLS=$(KILLS) go test -count=1 -timeout 60m -v $(ARGS) ./test/crash

clean: ## remove bin/ and installed packages of the client tests
	rm -rf bin test/clients/node_modules test/clients/mcp/node_modules test/clients/rest-py/venv
