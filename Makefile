# Every command that a person or CI runs here. `make` alone lists them.
# Go, make and git are enough for test, lint, fuzz, growth, sim and the demos; race needs a C compiler, and test-servers, pictures and
# release need what .ci/run installs.

FUZZTIME = 10s
TIME     = 30s
PROPERTIES = 1000
SIM      = pages
LAB      = overload -only headline -rounds 5
ENGINES  = leasetest leasepg leasenats leasekafka
VULNDB   = https://vuln.go.dev

# Without the place of a checkout in it, what one clone, or a target with a module cache of its own, has compiled is not compiled again.
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath
# The linter keeps absolute paths in its cache: each clone has its own.
export GOLANGCI_LINT_CACHE = $(CURDIR)/bin/lint-cache

# The modules outside go.work (their dependencies must raise nobody's versions); internal/system checks that
# there are no others.
OUTSIDE = internal/bench warden/wardencaddy

# They read the other modules and docs/, which the go command's test cache does not notice: they are never cached.
SYSTEM = ./internal/system
# $(call MADE,TARGET[,VARIABLE[,PAGE]]) COMMAND: run it, and note in the page of evidence that it writes when, from what and where.
MADE   = go run ./internal/system/made docs/evidence/$(or $(3),$(1)).md "make $(1)$(if $($(2)), $(2)='$($(2))')"
REPLAY = ./internal/system/alertslive
GAME   = ./internal/system/faults

# What `make test` leaves to `make test-servers`: the packages that need servers, programs in processes of their own or a browser, and so time.
SERVERS = ./examples/console ./examples/orders ./examples/quickstart ./lease/leasectl ./lease/leasenats/... ./lease/leasepg/...

# What `make race` leaves to `make test`: measured memory and long histories, on one goroutine or in virtual time.
LONG = TestBytesPerIdleDomain TestNamesOfAllLengthsRoll TestSteadyStateAllocatesNothing TestAHighFirstOffsetPinsNothing \
  TestBacklogIsGivenBack TestLongNamesAreGivenBack TestPropertyManyDomains TestPropertyEveryDroppableDomainIsDropped \
  TestBacklogProbesAreShort TestHotKeysCostOneMoreReading TestQuietBesideAFlood TestManyStuckKeysDelayOnlyThemselves \
  TestWorkThatDoesNotEnd TestPropertyASlowCompartmentIsLoweredAlone TestWhatAllCompartmentsShareLowersAll \
  TestLightTenantsKeepTheirHalf TestModeLongHistories TestLongHistories TestPropertyWhatWaitsCanBeWorkedOff \
  TestMemoryWorlds TestCutsWhatWaits TestAnHourOfDryRun

# Shell words, expanded in recipes: the modules of go.work, and their packages but SYSTEM, GAME and REPLAY (-e: a broken one must fail, not
# be left out).
MODULES  = $$(go list -m -f '{{.Dir}}')
PACKAGES = $$(go list -e work | grep -v -e '/internal/system$$' -e '/alertslive$$' -e '/system/faults$$')
# Packages at a time: the tests of many wait more than they compute.
TWICE = $$((2 * $$(getconf _NPROCESSORS_ONLN)))
# Of PACKAGES all but SERVERS: none is in neither.
QUICK = $$(printf '%s\n' $(PACKAGES) | grep -vxF "$$(go list $(SERVERS))")

.PHONY: help demo demo-orders pictures test test-servers test-alerts race lint vuln fuzz bench lab programs alerts-live faults sim sim-pages sim-worlds sim-mixed sim-heavy sim-fleet api growth mutants torture torture-faults gowork-off platforms release tidy

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: ## the storefront over real HTTP: a slow query with one pool and with compartments, a sale with and without a warden
	@go run ./examples/storefront

test: ## (90 s) the tests of every module but those of test-servers
	@echo "== tests (make test-servers: $(SERVERS) $(REPLAY))"
	@go test -vet=off -p $(TWICE) $(QUICK)
	@echo "== workspace"
	@go test -count=1 $(SYSTEM) $(GAME)

# Staticcheck goes through all that a module imports: of those that no user imports, a minute each for databases and servers of others.
lint: bin/golangci-lint bin/deadcode ## gofmt and golangci-lint (with go vet) on every module, and functions that nothing calls
	@echo "== gofmt"
	@files=$$(gofmt -l .) && [ -z "$$files" ] || { echo "not formatted (gofmt -w):" $$files; exit 1; }
	@echo "== the modules of go.work"
	@dead=$$(bin/deadcode -test -filter '^github.com/stopbank/stopbank/(admission|lease|warden)' $$(go list -m -f '{{.Dir}}/...')) && [ -z "$$dead" ] || { echo "$$dead"; exit 1; }
	@bin/golangci-lint run $$(go list -m -f '{{.Dir}}/...')
	@for m in $(OUTSIDE); do \
	  echo "== $$m"; \
	  every=; [ $$m = warden/wardencaddy ] || every='--disable staticcheck'; \
	  (cd $$m && GOWORK=off "$(CURDIR)/bin/golangci-lint" run $$every ./...) || exit 1; \
	done

# Fewer draws and histories than make test makes (25 draws of 30 steps: -short halves steps and takes a fifth of draws), and without LONG and
# the worlds in virtual time, whose parts have tests of their own here. Those of test-servers run nowhere else in CI, and whole.
RACE = CGO_ENABLED=1 go test -race -vet=off -timeout 30m -p $$(($$(getconf _NPROCESSORS_ONLN) + 1))
race: ## the tests, those of test-servers too, under the race detector (needs a C compiler)
	@echo "== not under the race detector (make test): internal/sim, $(LONG)"
	@RAPID_CHECKS=25 RAPID_STEPS=30 $(RACE) $(SERVERS)
	@RAPID_CHECKS=125 RAPID_STEPS=60 $(RACE) -short -skip "^($$(echo $(LONG) | tr ' ' '|'))$$" $$(printf '%s\n' $(QUICK) | grep -v '/internal/sim$$')

demo-orders: ## 10,000 orders: replicas are killed, frozen and thawed in the middle, then an audit
	@go run ./examples/orders

# Without KAFKA_BROKERS, make test runs those of lease/leasekafka on a fake broker, in virtual time.
test-servers: ## (3 min; KAFKA_BROKERS=host:port: and 30 on brokers of yours) the tests on PostgreSQL and NATS, of programs, in a browser, and of the alert rules in Prometheus
	@echo "== servers, programs, browser"
	@go test -timeout 30m $(SERVERS)
	@$(MAKE) --no-print-directory test-alerts
	@[ -z "$(KAFKA_BROKERS)" ] || go test -count=1 -timeout 90m ./lease/leasekafka

test-alerts: ## the alert rules, in Prometheus, over what it recorded
	@go test -count=1 -timeout 30m $(REPLAY)

# Each module alone, with the dependencies that its users get.
# Not of bench/programs, which are other people's programs.
vuln: bin/govulncheck ## known vulnerabilities in what each module calls (VULNDB=URL: asks another database than vuln.go.dev)
	@bash internal/tools/alone.sh '"$(CURDIR)/bin/govulncheck" -db $(VULNDB) $$(go list ./... | grep -v bench/programs)'

# The first build of the linter takes minutes; later ones are cached. CGO_ENABLED=0: no C compiler is asked for.
bin/deadcode bin/golangci-lint bin/govulncheck: internal/tools/versions
	@echo "== building $(@F)"
	@GOWORK=off CGO_ENABLED=0 GOBIN=$(CURDIR)/bin go install $$(grep '/$(@F)@' internal/tools/versions)

# One target a processor, which would spend its time on making inputs shorter. One that fails is written to the package's
# testdata/fuzz, and is a test from then on. Before Go 1.27 a fuzzer may call the end of its time a failure (go.dev/issue/75804).
fuzz: ## every fuzz target for FUZZTIME (10s)
	@find $(MODULES) -name '*_test.go' -exec grep '^func Fuzz' /dev/null {} + | sort -u \
	| sed 's|^\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*|\1 \2|' \
	| xargs -n 2 -P $$(getconf _NPROCESSORS_ONLN) sh -c \
	  'out=$$(go test -run "^$$" -fuzz "^$$1\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x -parallel 1 "$$0" 2>&1); code=$$?; printf "== %s\n%s\n" "$$1" "$$out"; \
	  [ $$code -eq 0 ] || { echo "$$out" | grep -qx "    context deadline exceeded" && ! echo "$$out" | grep -q "Failing input"; }'

bench: ## (15 min; BENCH='-rows ^Post': those) ours beside its peers: ratios, targets, allocations, also into docs/evidence/benchmarks.md
	@$(call MADE,bench,BENCH,benchmarks) env GOWORK=off go -C internal/bench run . -o ../../docs/evidence/benchmarks.md $(BENCH)

lab: ## real HTTP, more than can be answered: LAB='overload -only headline -rounds 5' (README's table, an hour), LAB=container, LAB=caddy; also into docs/evidence
	@$(call MADE,lab,LAB,$(firstword $(LAB))) env GOWORK=off go -C internal/bench run ./lab $(LAB) -o ../..

programs: ## (4 min; PROGRAMS='-only etcd': that one) programs that others have written, bare and behind README's lines, driven by their own clients: what differs
	@GOWORK=off go -C internal/bench/programs run . $(PROGRAMS)

sim: sim-$(SIM) ## the law in virtual time, into docs/evidence: beside the best constant target, and in 500 random worlds; or SIM=mixed (2,000 of several kinds of work), fleet, heavy, or worlds, CI's 460

sim-pages:
	@$(call MADE,sim,,simulation) go test -count=1 -timeout 30m -v -run '^TestSim$$' ./internal/sim -write ../../docs/evidence | grep --line-buffered -v '^[=-]'
	@$(call MADE,sim,,worlds) go test -count=1 -timeout 90m -v -run '^TestWorlds$$' ./internal/sim -worlds 500 -from 1795451014 -laws ours,told,inuse -write ../../docs/evidence

sim-worlds:
	@go test -exec 'env GOGC=400' -count=1 -timeout 30m -v -run '^TestWorlds$$' ./internal/sim -worlds 300 -fresh 60
	@go test -exec 'env GOGC=400' -count=1 -timeout 30m -v -run '^TestMixedWorlds$$' ./internal/sim -worlds 100

sim-mixed:
	@$(call MADE,sim,SIM,mixed) go test -count=1 -timeout 90m -v -run '^TestMixedWorlds$$' ./internal/sim -worlds 2000 -from 1795451014 -laws ours,told,inuse -write ../../docs/evidence

sim-heavy:
	@go test -count=1 -timeout 30m -v -run '^TestHeavyWorlds$$' ./internal/sim -worlds 200 -laws ours,forgetful

sim-fleet:
	@$(call MADE,sim,SIM,fleet) go test -count=1 -timeout 30m -v -run '^TestFleet$$' ./internal/sim -write ../../docs/evidence | grep --line-buffered -v '^[=-]'

api: ## write down what each module exports (docs/api), the console's JSON and the metrics (docs/metrics.md), or with BASE=COMMIT print what has changed of the API since
	@go test -count=1 -run '^TestStateFields$$' ./warden/console -update
	@go test -count=1 -run '^Test(MetricsPage|AScrapeShowsWhatIs)$$' ./warden/wardenprom -update
	@go test -count=1 -run '^TestExportedAPI$$' $(SYSTEM) -update
	@[ -z "$(BASE)" ] || bash internal/tools/apidiff.sh $(BASE)

pictures: ## (2 min) the console's pictures in docs/, with Chromium
	@STOPBANK_BROWSER=required STOPBANK_SCREENSHOTS="$(CURDIR)/docs" go test -count=1 -p 1 -run '^TestScreenshots$$' ./examples/console

alerts-live: ## what the storefront and a worker export in health and in each fault that an alert is for, into docs/prometheus/recorded: 65 minutes, or ALERTS='sale slow'
	@go run $(REPLAY) $(ALERTS)

# What has a result in bin/faults.json is not played again unless it is named.
faults: ## (2 h; FAULTS='hung freeze': those; FAULTS='-health 60m'; FAULTS=-short: 4 minutes) the blind fault game: is each fault named by alerts and runbook? also into docs/evidence/faults.md
	@$(call MADE,faults,FAULTS) go run $(GAME) -o docs/evidence/faults.md $(FAULTS)

growth: ## (2 min) each cost that a page or docstring promises to be constant, or free of allocations, with 10, 1,000 and 100,000 of what it must not depend on
	@go run ./internal/system/growth

mutants: ## (MUTANTS='-sample 50 warden/limiter': minutes) a package broken in every small way: what do its tests miss?
	@go run ./internal/system/mutants $(MUTANTS)

# A test that fails says by which seed to repeat it. The fuzzers have a target of their own.
torture: ## (5 min; TIME=15m: an hour; PROPERTIES=, ENGINES='leasepg', SEED=N) properties with more tries, histories, and faults for TIME on each engine, all at once; also into docs/evidence/torture.md
	@[ -z "$(PROPERTIES)" ] || RAPID_CHECKS=$(PROPERTIES) go test -count=1 -timeout 3h -run Property ./admission/... ./lease ./lease/d... ./lease/internal/journal ./warden/...
	@go run ./internal/system/made docs/evidence/torture.md "make torture TIME=$(TIME) PROPERTIES= ENGINES='$(ENGINES)'" \
	  $(MAKE) --no-print-directory torture-faults

torture-faults:
	@mkdir -p bin && failed=0; for e in $(ENGINES); do \
	  { go test -count=1 -timeout 6h -v -run 'TestMemory$$|TestDurable|TestTorture(Owners(InMemory|OfJournals|OnLoopback)?)?$$|TestLeaderLoss' ./lease/$$e \
	    $$([ $$e = leasetest ] || echo -torture.time=$(TIME) $(if $(SEED),-torture.seed=$(SEED))) >bin/torture-$$e.log 2>&1; echo $$? >bin/torture-$$e.code; } & \
	done; wait; for e in $(ENGINES); do \
	  [ "$$(cat bin/torture-$$e.code)" = 0 ] || { failed=1; cat bin/torture-$$e.log; }; \
	done; [ $$failed = 0 ]
	@sed '/^```text/q' docs/evidence/torture.md >bin/torture.md
	@for e in leasetest leasepg leasenats leasekafka; do [ ! -f bin/torture-$$e.log ] || \
	  { echo "lease/$$e:" && grep -E 'judged| all +[0-9]+ rounds|left out|^--- ' bin/torture-$$e.log | sed 's/^ *[a-z_]*.go:[0-9]*: /  /'; } | tee -a bin/torture.md; done
	@echo '```' >>bin/torture.md && mv bin/torture.md docs/evidence/torture.md

# The tests of the modules of go.work have run there, and make lint has vetted all. go list -export compiles and does not link.
gowork-off: ## tidy and compile each module alone, its tests too, with its siblings from a module proxy, as a consumer sees it; and test those outside of go.work, without Centrifugo (make programs)
	@bash internal/tools/alone.sh 'go mod tidy -diff; go list -test -export -f "{{/**/}}" ./...; \
	  case " $(OUTSIDE) " in *" $$MODULE "*) go test -vet=off -short ./... ;; esac'

# Tests are of one system alone more often than code is, and Windows is the least like Linux: it gets them all.
platforms: ## compile the published modules for other systems and processors, for Windows with their tests, and run those of the layers on 32 bits
	@for p in windows/amd64/-test darwin/arm64 linux/386; do \
	  echo "== $$p"; p=$$(echo $$p/ | tr / ' '); set -- $$p; \
	  CGO_ENABLED=0 GOOS=$$1 GOARCH=$$2 go list $$3 -export -f '{{/**/}}' ./admission/... ./lease/... ./warden/... || exit 1; \
	done
	@export CGO_ENABLED=0 RAPID_CHECKS=25; arch=386 emulator= long='./warden ./warden/control'; \
	GOARCH=386 go test -count=1 -run '^$$' ./warden/decision >/dev/null 2>&1 || \
	  { echo "== linux/arm through qemu-user-static, without warden and control, which take minutes there: this kernel runs no 386"; \
	    arch=arm emulator='-exec qemu-arm-static' long=; }; \
	GOARCH=$$arch go test -vet=off $$emulator ./admission/... ./lease ./lease/durable ./warden/decision ./warden/limiter ./warden/bulkhead $$long

release: ## DIR=/empty: tag every published module in a clone at CHANGELOG.md's version, and install each from a file proxy; pushes nothing
	@bash internal/tools/release.sh "$(DIR)"

# What has no tag yet changes with each commit, so no go.sum of the main branch has its checksum.
tidy: ## go mod tidy in every module, with siblings as the last commit has them
	@bash internal/tools/alone.sh 'cd "$(CURDIR)/$$MODULE"; go mod tidy; [ -z "$$SIBLINGS" ] || sed -i "\|^$$PROJECT/.* $$VERSION[/ ]|d" go.sum'
