# The thin front: everything real lives in CMake, scripts/ and tools/.
# make quickstart   install, build, and ask the bundled demo checkpoint a question
# make quickstart CHECKPOINT=qwen3-0.6b   the same with a real checkpoint, downloaded and converted first
# make test         install, build, lint, and run every test
# make test-aarch64 build the backends for AArch64 and run their tests under qemu-user
# make fuzz         run every fuzzer for FUZZ_SECONDS seconds (60); findings go to build/fuzz/findings
# make faults       plant known bugs, one at a time: the tests must notice each; rewrites docs/seeded-faults.md
# make coverage     which lines of the parsers the tests run: fails below 95 %; rewrites docs/coverage.md
# make bench        run the benchmarks and print them; BENCH=--record keeps them in bench/results
# make cuda-all     compile the CUDA backend for every architecture it knows (CUDA_GENERIC_ARCH_FLAGS: for others); runs nothing
# make test-clients run lm-evaluation-harness against kipp serve
# make server-load  10,000 mixed requests to kipp serve, and what connections cost; SERVER_LOAD=--output FILE keeps the record
# make interchange   build llama.cpp, and compare Kipp with it and with the gguf package (docs/interchange.md); takes long
.DEFAULT_GOAL := help
.PHONY: help setup build demo demo-schemes checkpoint quickstart test test-aarch64 lint bench asan tsan fuzz faults coverage cuda-all interchange test-clients server-load clean

CHECKPOINT ?= kipp-demo
PYTHON := .venv/bin/python
KIPP := build/release/bin/kipp
MODELS := models
DEMO := $(MODELS)/kipp-kipp-demo-bf16.gguf
DEMO_SCHEMES := $(MODELS)/kipp-kipp-demo-q8_0.gguf $(MODELS)/kipp-kipp-demo-affine4_gs32.gguf
MODEL := $(MODELS)/kipp-$(CHECKPOINT)-bf16.gguf

# How quickstart asks: a base checkpoint has no chat template, and the others would think for long on this backend.
ifeq ($(CHECKPOINT),kipp-demo)
PROMPT ?= What is Kipp?
ASK := --chat
else ifneq ($(filter %-base,$(CHECKPOINT)),)
PROMPT ?= The capital of France is
ASK := --decode 64
else
PROMPT ?= What is the capital of France?
ASK := --chat --thinking off
endif
JOBS ?= $(shell nproc)
BENCH ?=
SERVER_LOAD ?=
CUDA_GENERIC_ARCH_FLAGS ?=

help:
	@grep -E '^# make' Makefile | sed 's/^# //'

setup:
	@scripts/setup.sh run

build: setup
	@cmake --preset release -DKIPP_BUILD_TESTS=OFF > build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
	@cmake --build --preset release --target kipp_cli -j $(JOBS)

$(DEMO): $(wildcard tools/demo/checkpoint/*) tools/convert_to_gguf.py
	@mkdir -p $(MODELS)
	@$(PYTHON) -m tools.demo.unpack --output build/demo-snapshot
	@$(PYTHON) -m tools.convert_to_gguf --checkpoint kipp-demo --source build/demo-snapshot --output $(DEMO)

# The quantised schemes, for the gates and the comparison with llama.cpp.
$(MODELS)/kipp-kipp-demo-%.gguf: $(wildcard tools/demo/checkpoint/*) tools/convert_to_gguf.py tools/block_quantization.py
	@mkdir -p $(MODELS)
	@$(PYTHON) -m tools.demo.unpack --output build/demo-snapshot-$*
	@$(PYTHON) -m tools.convert_to_gguf --checkpoint kipp-demo --source build/demo-snapshot-$* --scheme $* --output $@

demo: setup $(DEMO)

demo-schemes: demo $(DEMO_SCHEMES)

checkpoint: setup
	@$(PYTHON) -m tools.download_model $(CHECKPOINT) --output $(MODELS)/$(CHECKPOINT)
	@test -f $(MODEL) || $(PYTHON) -m tools.convert_to_gguf --checkpoint $(CHECKPOINT) \
	  --source $(MODELS)/$(CHECKPOINT) --output $(MODEL)

quickstart: build $(if $(filter kipp-demo,$(CHECKPOINT)),demo,checkpoint)
	@echo; echo "> $(PROMPT)"
	@$(KIPP) run --model $(MODEL) $(ASK) --greedy "$(PROMPT)"

test:
	@scripts/test.sh

lint:
	@scripts/setup.sh test
	@scripts/lint.sh

asan:
	@scripts/setup.sh sanitize
	@scripts/test.sh --preset asan

tsan:
	@scripts/setup.sh sanitize
	@scripts/test.sh --preset tsan

test-aarch64:
	@scripts/setup.sh aarch64
	@cmake --preset aarch64
	@cmake --build --preset aarch64 -j $(JOBS)
	@ctest --preset aarch64 -j $(JOBS)

fuzz:
	@scripts/setup.sh sanitize
	@scripts/fuzz.sh

faults:
	@scripts/setup.sh test
	@cmake --preset faults -DKIPP_BUILD_TESTS=ON
	@cmake --build --preset faults -j $(JOBS)
	@$(PYTHON) -m tools.run_seeded_faults

coverage: demo
	@scripts/setup.sh sanitize
	@scripts/coverage.sh --write

bench: demo
	@scripts/setup.sh bench
	@scripts/bench.sh $(BENCH)

cuda-all:
	@scripts/setup.sh run
	@CUDA_GENERIC_ARCH_FLAGS="$(CUDA_GENERIC_ARCH_FLAGS)" scripts/cuda_all.sh

test-clients: build demo
	@scripts/setup.sh clients
	@KIPP_BINARY=$(KIPP) KIPP_DEMO_ARTIFACT=$(DEMO) build/clients-venv/bin/python -m pytest tests/clients

server-load: build demo
	@$(PYTHON) bench/server_load.py --kipp $(KIPP) --model $(DEMO) $(SERVER_LOAD)

interchange: demo
	@scripts/setup.sh interchange
	@scripts/interchange.sh

clean:
	rm -rf build
