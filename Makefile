# `go test ./...` alone is always enough while working; these are the rest.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PLATFORMS   := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
SOAK        ?= 1m
FUZZTIME    ?= 30s

.PHONY: check lint race cross soak long fuzz update conformance acceptance readers bench-gateway

check: SOAK = 15s
check: ## everything CI runs beyond `go test ./...`, each with its time
	@for t in lint race cross soak conformance acceptance readers; do begin=$$(date +%s); $(MAKE) --no-print-directory $$t SOAK=$(SOAK) || exit 1; echo "make $$t took $$(($$(date +%s) - begin)) s"; done

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w"; exit 1; }
	go mod tidy -diff
	go vet ./...
	go run $(STATICCHECK) ./...

race:
	go test -race -timeout 30m ./...

cross:
	@for p in $(PLATFORMS); do echo "build $$p"; CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build -o /dev/null ./cmd/patchbay && GOOS=$${p%/*} GOARCH=$${p#*/} go vet . ./config ./internal/... || exit 1; done

soak: ## long runs; SOAK is the time for each
	PATCHBAY_SOAK=$(SOAK) go test -tags soak -race -run '^TestSoak' -timeout 30m ./...

long: ## what takes longer than CI may: attacks on the real binary (Linux), a file that is written all the time, soak and fuzz for a while
	go test -count=1 -tags long -v -run '^TestLong' -timeout 15m ./internal/mcptest/attacks
	go run ./bench/host -check -rewrites 1m
	$(MAKE) soak SOAK=1m
	$(MAKE) fuzz FUZZTIME=10000x

fuzz: ## every fuzz target for FUZZTIME, a time or a number of executions (100000x)
	@for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

update: ## rewrite expected output
	go test ./... -update

conformance: ## the official suite and servers from npm; needs Node
	internal/mcptest/conformance/run

bench-gateway: ## what a gateway costs, against a raw proxy and one of the SDK; Linux
	go run ./bench/gateway -check

acceptance: ## real clients from npm use the gateway; needs Node
	internal/mcptest/acceptance/run

readers: ## servers in Node and Python do what was judged; needs node and python3
	go test -count=1 -tags readers ./internal/mcptest/readers
