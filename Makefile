# make demo   own virtual environment, build, and the 1024^3 matrix product on the simulated chip
# make check  every test
# make hard   the C core under the address and undefined-behaviour sanitizers: golden tests, memory that runs out at
#             each of FAIL_MOST requests a file (0: at every one), limits that everything runs into, mutants of texts,
#             kernels and files (FUZZ_SECONDS each); threads under the thread sanitizer
# make bench  the published ratios          make wheel  a wheel in dist/
# make lint   include rules, sizes, tables  make clean  removes what make made

PYTHON ?= python3
VENV   ?= .venv
EXTRAS ?= test
BIN    := $(VENV)/bin
FUZZ_SECONDS ?= 20
FAIL_MOST ?= 300
STAMP  := $(VENV)/.installed-$(EXTRAS)
SOURCE := CMakeLists.txt pyproject.toml $(shell find src include tools -name '*.[ch]' -o -name '*.def' 2>/dev/null)

.PHONY: demo check test hard bench wheel lint install golden clean

install: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# the Python files are used from the tree; only C sources make a new install necessary
$(STAMP): $(BIN)/python $(SOURCE)
	$(BIN)/python -m pip install --quiet -e '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/01_gemm.py

check: lint test

test: $(STAMP)
	$(BIN)/python -m pytest -q test

golden: $(STAMP)
	$(BIN)/python -m pytest -q test --update-golden

lint: $(STAMP)
	$(BIN)/python tools/lint.py

hard: $(STAMP)
	$(BIN)/python -m pip install --quiet 'cmake>=3.26' ninja
	$(BIN)/cmake -S . -B build/hard -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DTL_SANITIZE=ON -DTL_PYTHON=OFF
	$(BIN)/cmake --build build/hard
	$(BIN)/cmake -S . -B build/tiny -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DTL_SANITIZE=ON -DTL_TINY=ON \
	  -DTL_PYTHON=OFF
	$(BIN)/cmake --build build/tiny
	build/hard/fail_alloc -n $(FAIL_MOST) test/random/*.tl test/ir/gemm.tl test/sim/mix-cross-flags.tl test/sim/sync-all.tl \
	  test/sim/reads-decide.tl
	$(BIN)/python tools/fuzz/fuzz_files.py --tlc $(abspath build/hard/tlc) --seconds $(FUZZ_SECONDS)
	$(BIN)/python tools/fuzz/fuzz_dsl.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python tools/fuzz/fuzz_ir.py --seconds $(FUZZ_SECONDS)
	cd build/hard && ./fuzz_parse -s $(FUZZ_SECONDS) $(abspath $(wildcard test/ir/*.tl test/ir/bad/*.tl test/random/*.tl))
	cd build/tiny && ./fuzz_parse -s $(FUZZ_SECONDS) $(abspath $(shell find test -name '*.tl'))
	TLC=$(abspath build/hard/tlc) ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(BIN)/python -m pytest -q test/test_golden.py
	$(BIN)/cmake -S . -B build/threads -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DTL_SANITIZE=thread \
	  -DTL_PYTHON=OFF
	$(BIN)/cmake --build build/threads
	TLC=$(abspath build/threads/tlc) TL_SANITIZE=thread $(BIN)/python -m pytest -q test/rt/test_threads.py

bench: $(STAMP)
	@for f in bench/bench.py bench/emit.py bench/launch.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

wheel: $(BIN)/python
	$(BIN)/python -m pip wheel --quiet --no-deps -w dist .

clean:
	rm -rf build dist $(VENV) .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
