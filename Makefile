# The commands of contributors. The longer ones are scripts in .ci/.

# The flags of xcaddy, so that both builds share one build cache.
CADDY_FLAGS := -trimpath -tags nobadger,nomysql,nopgx -ldflags '-s -w'
CADDY := bin/caddy

.DEFAULT_GOAL := help
.PHONY: help run example build test flaky lint fmt bench chaos clean simulate servers toolchains versions reproduce instructions exact exact-long fuzz mutants site

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Caddy's data is kept in bin, apart from that of another Caddy of the same user.
run: build ## Build Caddy with Diana and serve examples/quickstart (PORT, 8080; ADMIN, 2019)
	@.ci/ports
	@.ci/howto
	@XDG_DATA_HOME='$(CURDIR)/bin/data' XDG_CONFIG_HOME='$(CURDIR)/bin/config' exec bin/caddy run --watch --config examples/quickstart/Caddyfile

example: ## Run an example with its upstream, and print what to try (NAME: a folder of examples, such as llm-gateway; PORT, ADMIN)
	@.ci/example $(NAME)

build: ## Build Caddy with Diana into bin/caddy
	@echo "building $(CADDY) (takes minutes the first time, to download and compile all of Caddy)"
	@CGO_ENABLED=0 go build $(CADDY_FLAGS) -o $(CADDY) ./cmd/caddy

test: ## Run every test of every module (installs redis-server, chromium, axe-core, prometheus, nginx and HTTP clients if missing)
	@.ci/test

flaky: ## Repeat the tests RUN of the folder IN, TIMES times (50), beside LOAD (8) busy processes
	@.ci/flaky

chaos: ## Inject faults under load and print a table of promises and results
	@.ci/chaos

servers: ## Test the store with each server in docs/redis.md, and write its table (Debian; SERVERS: which, such as valkey9)
	@.ci/servers $(SERVERS)

toolchains: ## Run the tests of this module with the newest Go (TOOLCHAIN: which, such as go1.27.4)
	@.ci/toolchains $(TOOLCHAIN)

simulate: ## Simulate instances, Redis and the network with faults until stopped (docs/internals/simulation.md)
	@.ci/simulate

exact: ## Compare the arithmetic with an oracle: a million verdicts per algorithm
	@.ci/exact

exact-long: ## Like exact, with ten times as many verdicts
	@.ci/exact 12000000

fuzz: ## Fuzz every target for FUZZTIME (30s) each
	@.ci/fuzz

mutants: ## Check that each of many small changes fails a test, and write bin/mutants.md
	@.ci/need redis
	@mkdir -p bin && cd test/exact && go run ./mutants -o ../../bin/mutants.md

lint: ## Check form, style and known vulnerabilities of every module
	@.ci/lint

fmt: ## Format every Go file
	@.ci/build-tools gofumpt
	@bin/tools/gofumpt -w .

versions: ## Run the version before beside this one on one Redis, and replace one by the other
	@.ci/versions

reproduce: ## Build the binary of a release twice, in two folders, and compare the bytes
	@.ci/reproduce

instructions: ## Count the instructions of a request, and of Redis for a check, and compare them with what is held (UPDATE_GOLDENS=1: write test/instructions)
	@.ci/need redis instructions
	@cd test/instructions && CGO_ENABLED=0 go test $(CADDY_FLAGS) -count 1 -timeout 30m -v . | grep -E "instructions|^(FAIL|ok)"
	@CGO_ENABLED=0 go test $(CADDY_FLAGS) -count 1 -v -run TestInstructions ./internal/stores/redis | grep -E "instructions|^(FAIL|ok)"

bench: ## Run the benchmarks: in process and over HTTP, local and with Redis
	@.ci/bench

site: ## Build the site of the documentation into bin/site/dist (installs VitePress if missing)
	@.ci/site

clean: ## Remove the output of the other targets
	@rm -rf bin
