# Everything a contributor types. The long parts are scripts in .ci/.

# The same flags as xcaddy's, so that both builds share one build cache.
CADDY_FLAGS := -trimpath -tags nobadger,nomysql,nopgx -ldflags '-s -w'
CADDY := bin/caddy

.DEFAULT_GOAL := help
.PHONY: help run build test lint fmt bench chaos clean exact exact-long fuzz mutants

help: ## Show what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What it writes stays in bin: another Caddy of this user keeps its files.
run: build ## Build Caddy with Diana and serve examples/quickstart on port 8080
	@.ci/howto
	@XDG_DATA_HOME='$(CURDIR)/bin/data' XDG_CONFIG_HOME='$(CURDIR)/bin/config' exec bin/caddy run --config examples/quickstart/Caddyfile

build: ## Build Caddy with Diana into bin/caddy
	@echo "building $(CADDY) (some minutes the first time: all of Caddy is downloaded and compiled)"
	@CGO_ENABLED=0 go build $(CADDY_FLAGS) -o $(CADDY) ./cmd/caddy

test: ## Run every test of every module (installs redis-server, chromium and prometheus if missing)
	@.ci/test

chaos: ## Break Redis under load in every way: a table of promises and results
	@.ci/chaos

exact: ## Prove the arithmetic: a million verdicts for each algorithm, 0 differences
	@.ci/exact

exact-long: ## The same with ten times as many
	@.ci/exact 12000000

fuzz: ## Fuzz every target for FUZZTIME (30s) each
	@.ci/fuzz

mutants: ## Break one thing at a time and see a test fail: docs/mutants.md
	@.ci/need-redis
	@cd test/exact && go run ./mutants -o ../../docs/mutants.md

lint: ## Check form, style and known vulnerabilities of every module
	@.ci/lint

fmt: ## Format every Go file
	@.ci/build-tools gofumpt
	@bin/tools/gofumpt -w .

bench: ## Measure: in process and over HTTP, local and with Redis
	@.ci/bench

clean: ## Remove what the other targets built
	@rm -rf bin
