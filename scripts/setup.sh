#!/usr/bin/env bash
# Installs what Kipp needs on Debian 12 (root, or sudo): distribution packages and a Python environment in .venv.
# Usage: scripts/setup.sh [run|test|aarch64|sanitize|bench|interchange|clients]   run: build and convert; test: also lint;
# aarch64: also a cross compiler and an emulator; sanitize: also TSan, fuzzing and coverage; bench: also the tokenizer
# that ours is compared with; interchange: also llama.cpp, built from source in an environment of its own,
# build/interchange-venv; clients: also lm-evaluation-harness, in build/clients-venv.
# Does nothing, and needs no network, where everything is there already. It installs neither a driver for GPUs nor the CUDA
# toolkit: where nvcc is in PATH the CUDA backend is built too, elsewhere everything else is (docs/cuda.md).
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:-run}
packages=(g++ cmake ninja-build make git xz-utils ca-certificates python3 python3-venv nlohmann-json3-dev libcli11-dev
          libfmt-dev libexpected-dev libtomlplusplus-dev libutf8proc-dev libedit-dev libboost1.81-dev libssl-dev)
case "$profile" in
  run) ;;
  test) packages+=(libgtest-dev libgmock-dev clang-19 clang-format-19 clang-tidy-19 shellcheck mandoc zsh fish
                   curl jq openssh-client) ;;
  aarch64) packages+=(googletest g++-aarch64-linux-gnu qemu-user) ;;
  sanitize) packages+=(libgtest-dev libgmock-dev clang-19 libclang-rt-19-dev llvm-19) ;;
  bench) packages+=(libgtest-dev libgmock-dev) ;;
  interchange) packages+=(libgtest-dev libgmock-dev) ;;
  clients) ;;
  *) echo "setup.sh: unknown profile '$profile'; expected run, test, aarch64, sanitize, bench, interchange or clients" >&2
     exit 2 ;;
esac

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup.sh: not root and no sudo; run as root: $*" >&2
    return 1
  fi
}

missing=()
for package in "${packages[@]}"; do
  if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
    missing+=("$package")
  fi
done
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup.sh: no apt-get here; install the equivalents of: ${missing[*]}" >&2
    exit 1
  fi
  echo "Installing packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

hash_of() {
  sha256sum "$1" | cut -d' ' -f1
}

# is_installed STAMP HASH: whether the stamp says that the requirements of this hash were installed.
is_installed() {
  [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

# make_environment FOLDER: a new one in the place of any other.
make_environment() {
  rm -rf "$1"
  /usr/bin/python3 -m venv "$1"
}

# install_python NAME STAMP: requirements/NAME.txt into .venv, unless the stamp says that it was done.
install_python() {
  local requirements=requirements/$1.txt stamp=.venv/$2 wanted
  wanted=$(hash_of "$requirements")
  if is_installed "$stamp" "$wanted"; then
    return
  fi
  echo "Making the Python environment .venv ($1)"
  if [ "$1" = base ]; then
    make_environment .venv
  fi
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r "$requirements"
  echo "$wanted" > "$stamp"
}

# install_interchange: requirements/interchange.txt into an environment of its own, unless its stamp says that it was done.
# Only llama-cpp-python comes as source. It is built by the pinned build backend, hence in two steps, with ninja and
# cmake of the distribution, and without llama.cpp's programs.
install_interchange() {
  local requirements=requirements/interchange.txt folder=build/interchange-venv wanted
  local pip=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all:)
  wanted=$(hash_of "$requirements")
  if is_installed "$folder/requirements.sha256" "$wanted"; then
    return
  fi
  echo "Making the Python environment $folder; building llama.cpp takes some minutes"
  make_environment "$folder"
  sed '/^llama-cpp-python==/,/# via/d' "$requirements" > "$folder/wheels.txt"
  "${pip[@]}" -r "$folder/wheels.txt"
  CMAKE_ARGS="-DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF" CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
    "${pip[@]}" --no-build-isolation --no-binary=llama-cpp-python -r "$requirements"
  echo "$wanted" > "$folder/requirements.sha256"
}

# install_clients: requirements/clients.txt into an environment of its own, unless its stamp says that it was done. Three
# packages come as source only; they are built with the environment's own setuptools, so that nothing unpinned is fetched.
install_clients() {
  local requirements=requirements/clients.txt folder=build/clients-venv wanted
  local pip=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps)
  local sources=rouge-score,sqlitedict,word2number
  wanted=$(hash_of "$requirements")
  if is_installed "$folder/requirements.sha256" "$wanted"; then
    return
  fi
  echo "Making the Python environment $folder"
  make_environment "$folder"
  "${pip[@]}" --only-binary=:all: --no-binary="$sources" --no-build-isolation -r "$requirements"
  echo "$wanted" > "$folder/requirements.sha256"
}

install_python base requirements.sha256
if [ "$profile" = test ]; then
  install_python server server.sha256
fi
if [ "$profile" = bench ]; then
  install_python bench bench.sha256
fi
if [ "$profile" = interchange ]; then
  install_interchange
fi
if [ "$profile" = clients ]; then
  install_clients
fi
if [ -e /proc/driver/nvidia/version ] && ! command -v nvcc >/dev/null; then
  echo "There is an NVIDIA GPU here, but no nvcc in PATH: Kipp is built without its CUDA backend (docs/cuda.md)"
fi
