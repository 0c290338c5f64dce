#!/usr/bin/env bash
# Runs the CUDA gate on a Verda cloud VM that it makes and deletes; docs/cloud-gate.md says how to use it.
# However it ends, it deletes the VM, its OS volume and its SSH key, and asks the service until it says that they are gone.
set +x # a trace would show credentials
set -euo pipefail
umask 077
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/ops/verda_api.sh
. "$root/tools/ops/verda_api.sh"

usage() {
  cat <<'TEXT'
usage: verda_cuda_gate.sh --instance-type TYPE [options]     shows the price and the limit, makes nothing, exits 2
       verda_cuda_gate.sh --instance-type TYPE --accept-cost-of USD [options]
       verda_cuda_gate.sh --cleanup STATE                    deletes what a killed run left

  --instance-type TYPE   for instance 1H100.80S.30V
  --accept-cost-of USD   must cover the price of the whole time, else nothing is made
  --max-minutes N        work is stopped then, and all is deleted (default 90)
  --location CODE        default: the first that has the type
  --image NAME           default ubuntu-24.04-cuda-12.8-open-docker
  --volume-gb N          size of the OS volume (default 100)
  --command TEXT         runs on the VM in the repository, after the build, instead of the gate
  --output FOLDER        where the record of a passed gate goes (default bench/results)
  --state FOLDER         where the state file lies while something may exist (default build/cloud-gate)
  --allow-dirty          run the last commit although the working tree has changes, which stay here

VERDA_CLIENT_ID and VERDA_CLIENT_SECRET: the credentials, from the environment only.
Exit codes: 0 passed, 1 failed, 2 refused, 3 time limit, 4 something may still exist and cost money, 129/130/143 signal.
TEXT
}

# What is done on the VM, in the repository, by its shell. The gate may be given with --command.
# shellcheck disable=SC2016
readonly BUILD_COMMAND='{ cloud-init status --wait || true; } >/dev/null 2>&1 # while it installs, we cannot
scripts/setup.sh run &&
.venv/bin/python -m pip install --quiet --require-hashes --only-binary=:all: -r requirements/reference.txt &&
export PATH="$PATH:/usr/local/cuda/bin" &&
cmake --preset release -DKIPP_BUILD_TESTS=OFF -DKIPP_CUDA=ON &&
cmake --build --preset release --target kipp_cli -j "$(nproc)"'
# shellcheck disable=SC2016
readonly GATE_COMMAND='gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr "A-Z /" "a-z--") &&
.venv/bin/python -m tools.run_full_size_gates qwen3-0.6b --machine "$gpu" --backend cuda --gates against-oracle'
readonly RECORDS='*cuda*.json' # in bench/results, newer than the copied source

SSH=${KIPP_VERDA_SSH:-ssh}
SCP=${KIPP_VERDA_SCP:-scp}
VM_USER=${KIPP_VERDA_USER:-root}
POLL_MS=${KIPP_VERDA_POLL_MS:-5000}       # between two looks at the VM
BOOT_S=${KIPP_VERDA_BOOT_S:-900}          # from the order to the first login
TEARDOWN_S=${KIPP_VERDA_TEARDOWN_S:-600}  # deleting, and seeing that it is gone
SETTLE_S=${KIPP_VERDA_SETTLE_S:-120}      # a request whose answer was lost may take effect until then

type='' accepted='' minutes=90 location='' image=ubuntu-24.04-cuda-12.8-open-docker volume_gb=100
command=$GATE_COMMAND output='' state_folder='' dirty_allowed=0 cleanup=''
name='' key='' instance='' volume='' unsure='' # the state; unsure: where a request's answer was lost
state='' child='' ip='' price='' found='' left=()

parse_arguments() {
  while (($# > 0)); do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --allow-dirty) dirty_allowed=1; shift; continue ;;
      --instance-type | --accept-cost-of | --max-minutes | --location | --image | --volume-gb | --command | --output | \
        --state | --cleanup) [[ $# -gt 1 && -n $2 ]] || die 2 "$1 needs a value" ;;
      *) die 2 "unknown argument '$1'; --help lists them" ;;
    esac
    case $1 in
      --instance-type) type=$2 ;;
      --accept-cost-of) accepted=$2 ;;
      --max-minutes) minutes=$2 ;;
      --location) location=$2 ;;
      --image) image=$2 ;;
      --volume-gb) volume_gb=$2 ;;
      --command) command=$2 ;;
      --output) output=$2 ;;
      --state) state_folder=$2 ;;
      --cleanup) cleanup=$2 ;;
    esac
    shift 2
  done
}

check_arguments() {
  local tool
  check_api
  for tool in awk curl jq git tar ssh-keygen "$SSH" "$SCP"; do
    command -v "$tool" >/dev/null || die 2 "$tool is missing (scripts/setup.sh test installs what this needs)"
  done
  if [ -z "$cleanup" ]; then
    [ -n "$type" ] || die 2 "--instance-type is missing; --help lists the arguments"
    [[ $minutes =~ ^(0|[1-9][0-9]*)(\.[0-9]+)?$ && ! $minutes =~ ^[0.]*$ ]] ||
      die 2 "--max-minutes must be a number above 0, not '$minutes'"
    [[ $volume_gb =~ ^[1-9][0-9]*$ ]] || die 2 "--volume-gb must be a whole number, not '$volume_gb'"
    [[ -z $accepted || $accepted =~ ^(0|[1-9][0-9]*)(\.[0-9]+)?$ ]] ||
      die 2 "--accept-cost-of must be an amount, not '$accepted'"
  fi
  take_credentials
}

# save_state: what may exist. None of the values needs quoting.
save_state() {
  printf '{"api": "%s", "name": "%s", "key": "%s", "instance": "%s", "volume": "%s", "unsure": "%s"}\n' \
    "$API" "$name" "$key" "$instance" "$volume" "$unsure" >"$state.new" && mv -f "$state.new" "$state"
}

load_state() {
  local values=() id
  [ -f "$1" ] || die 2 "there is no state file $1"
  mapfile -t values < <(jq -r '.api, .name, .key, .instance, .volume, .unsure' "$1" 2>/dev/null)
  [[ ${#values[@]} -eq 6 && ${values[1]} =~ ^kipp-gate-[0-9]+-[0-9a-f]+$ ]] || die 2 "$1 is not a state file"
  [ "${values[0]}" = "$API" ] || die 2 "$1 is of ${values[0]}; set KIPP_VERDA_API to that"
  for id in "${values[@]:2:3}"; do
    [ -z "$id" ] || is_id "$id" || die 2 "$1 is not a state file"
  done
  name=${values[1]} key=${values[2]} instance=${values[3]} volume=${values[4]} unsure=${values[5]} state=$1
}

# quote: shows what it costs at most and ends here unless that was accepted.
quote() {
  local said=() limit
  api GET '/instance-types?currency=usd' || die 1 "cannot ask for the price: $(why)"
  mapfile -t said < <(jq -r --arg type "$type" --argjson minutes "$minutes" --argjson teardown "$TEARDOWN_S" \
    --argjson accepted "${accepted:-0}" '[.[] | select(.instance_type == $type)][0].price_per_hour | tonumber | select(. > 0) |
    ((. * ($minutes / 60 + $teardown / 3600) * 100 | ceil) / 100) as $limit | ., $limit, $accepted >= $limit' \
    "$work/answer" 2>/dev/null)
  ((${#said[@]} == 3)) || die 2 "the service names no price of instance type '$type'"
  price=${said[0]} limit=${said[1]}
  echo "$type costs $price USD an hour. At most $minutes minutes of work and $((TEARDOWN_S / 60)) to delete it: $limit USD,"
  echo "and the storage of an OS volume of $volume_gb GB for that time."
  [ -n "$accepted" ] || die 2 "nothing was made; --accept-cost-of $limit makes it"
  [ "${said[2]}" = true ] || die 2 "nothing was made; --accept-cost-of $accepted is less than $limit"
}

choose_location() {
  local wanted=$location
  api GET /instance-availability || die 1 "cannot ask where $type is available: $(why)"
  location=$(jq -er --arg type "$type" --arg wanted "$wanted" '[.[] | select(.availabilities | index($type)) | .location_code |
    select($wanted == "" or . == $wanted)][0]' "$work/answer" 2>/dev/null) ||
    die 1 "$type is not available now${wanted:+ in $wanted}; nothing was made"
}

check_tree() {
  if [ -n "$(git -C "$root" status --porcelain)" ] && ((!dirty_allowed)); then
    die 2 "the working tree has changes, which would not be tested; commit them, or --allow-dirty for the last commit"
  fi
}

# prepare: all that can fail here, before anything costs money. A shallow clone, so that records name the commit.
prepare() {
  output=${output:-$root/bench/results}
  state_folder=${state_folder:-$root/build/cloud-gate}
  mkdir -p "$output" "$state_folder" || die 1 "cannot write to $output and $state_folder"
  name=kipp-gate-$(date -u +%Y%m%d%H%M%S)-$(od -An -N4 -tx1 /dev/urandom | tr -d ' \n')
  git clone --quiet --depth 1 "file://$root" "$work/kipp" || die 1 "cannot copy the repository"
  git -C "$work/kipp" remote remove origin
  tar -czf "$work/kipp.tar.gz" -C "$work" kipp
  ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$work/key"
  ssh_options=(-F /dev/null -i "$work/key" -o IdentitiesOnly=yes -o BatchMode=yes -o LogLevel=ERROR
    -o StrictHostKeyChecking=accept-new -o "UserKnownHostsFile=$work/known_hosts" -o ConnectTimeout=15
    -o ServerAliveInterval=15 -o ServerAliveCountMax=4)
  state=$state_folder/$name.json
  save_state || die 1 "cannot write $state"
}

# order KIND BODY: makes something, and prints nothing; its id into $ordered. The state says that it may exist before that.
order() {
  check_time
  unsure=$1
  save_state || die 1 "cannot write $state"
  if ! api POST "/$1" "$2"; then
    [[ $http != 4?? ]] || unsure=''
    die 1 "cannot make the VM ($1): $(why)"
  fi
  ordered=$(answer_id) || die 1 "the service answered without an id ($1)"
}

create() {
  order ssh-keys "$(jq -n --arg name "$name" --rawfile key "$work/key.pub" '{name: $name, key: $key | rtrimstr("\n")}')"
  key=$ordered unsure=''
  save_state
  order instances "$(jq -n --arg name "$name" --arg type "$type" --arg image "$image" --arg key "$key" \
    --arg location "$location" --argjson size "$volume_gb" '{instance_type: $type, image: $image, hostname: $name,
      description: "kipp CUDA gate, to be deleted", ssh_key_ids: [$key], location_code: $location,
      contract: "PAY_AS_YOU_GO", is_spot: false, os_volume: {name: $name, size: $size}}')"
  instance=$ordered unsure=''
  save_state
  say "instance $instance ($name) is ordered in $location; state: $state"
}

# learn_volume ID: the OS volume, into the state.
learn_volume() {
  if is_id "$1" && [ "$1" != "$volume" ]; then
    volume=$1
    save_state
  fi
}

wait_until_running() {
  local status='' end=$((SECONDS + BOOT_S)) said=()
  while ((SECONDS < end)); do
    check_time
    if api GET "/instances/$instance"; then
      mapfile -t said < <(jq -r --argjson price "$price" '.status // "unknown", .ip // "", .os_volume_id // "",
        (.price_per_hour // 0 | tonumber) <= $price * 1.001' "$work/answer" 2>/dev/null)
      status=${said[0]:-unreadable} ip=${said[1]:-}
      learn_volume "${said[2]:-}"
      [ "${said[3]:-}" != false ] || die 1 "the instance costs more than the $price USD an hour that were shown"
      case $status in
        running) [[ ! $ip =~ ^[0-9]+(\.[0-9]+){3}$ ]] || return 0 ;;
        error | no_capacity | notfound | discontinued | deleting | deleted | offline)
          die 1 "the instance did not come up: $status" ;;
      esac
    else
      status=$(why)
    fi
    nap "$POLL_MS"
  done
  die 1 "the instance did not come up in $BOOT_S s; last seen: $status"
}

# guarded COMMAND: runs it so that signals and the time limit end it at once; its status.
guarded() {
  local status=0
  "$@" </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    check_time
    nap $((POLL_MS < 1000 ? POLL_MS : 1000))
  done
  wait "$child" || status=$?
  child=''
  return "$status"
}

remote() { guarded "$SSH" "${ssh_options[@]}" "$VM_USER@$ip" "$1"; }

# quietly COMMAND: for guarded. A redirection of guarded itself would also swallow what is said when the time is over.
quietly() { exec "$@" 2>"$work/ssh-error"; }

wait_for_login() {
  local end=$((SECONDS + BOOT_S))
  until guarded quietly "$SSH" "${ssh_options[@]}" "$VM_USER@$ip" true; do
    ((SECONDS < end)) || die 1 "no login in $BOOT_S s: $(head -c 200 "$work/ssh-error" | tr -cd '[:print:]')"
    nap "$POLL_MS"
  done
}

# run_on_vm: copies, builds, runs, fetches. The VM also gets a timer of its own: if this machine dies, its work ends.
run_on_vm() {
  local timer=$(((deadline - SECONDS) / 60 + 5)) status=0
  remote "if [ \"\$(id -u)\" = 0 ]; then shutdown -P +$timer; else sudo -n shutdown -P +$timer; fi" ||
    die 1 "cannot set the VM's timer"
  guarded "$SCP" "${ssh_options[@]}" "$work/kipp.tar.gz" "$VM_USER@$ip:kipp.tar.gz" || die 1 "cannot copy the source"
  remote "tar --touch --no-same-owner -xzf kipp.tar.gz && touch started" || die 1 "cannot unpack the source"
  say "building"
  remote "cd kipp && { $BUILD_COMMAND
}" || die 1 "the build failed"
  say "running the gate"
  remote "cd kipp && { $command
}" || status=$?
  if ((status)); then
    fetch "$state_folder" || say "there is no record"
    die 1 "the gate failed: exit $status"
  fi
  fetch "$output" || die 1 "the gate passed, but its record could not be fetched"
}

# fetch FOLDER: the gate's records; fails if there is none.
fetch() {
  local record
  remote "mkdir -p record && find kipp/bench/results -name '$RECORDS' -newer started -exec cp -t record {} +" || return 1
  mkdir -p "$work/record"
  guarded "$SCP" "${ssh_options[@]}" "$VM_USER@$ip:record/*.json" "$work/record/" || return 1
  for record in "$work"/record/*.json; do
    jq -e . "$record" >/dev/null 2>&1 || return 1
    install -m 0644 "$record" "$1/" || return 1
    say "record: $1/${record##*/}"
  done
}

# look PATH FIELD ID STATUSES: ids of ours in a list, into $found; entries with one of the statuses are gone. An entry of
# ours with a strange id is an error.
look() {
  found=''
  if ! api GET "$1" || ! found=$(jq -er --arg field "$2" --arg id "$3" --arg name "$name" --arg gone "$4" '
    (arrays // error) | [.[] | select(.id == $id or .[$field] == $name) | select(.is_permanently_deleted != true) |
    select(.status as $status | $gone / " " | index($status) | not) | .id |
    if test("^[A-Za-z0-9-]{8,64}$") then . else error end] | join(" ")' "$work/answer" 2>/dev/null); then
    left+=("$1: the service did not say ($(why))")
  fi
}

# look_closer KIND ID STATUSES: asks for the one with that id too, since a list may be cut; adds it to $found.
look_closer() {
  [[ -n $2 && " $found " != *" $2 "* ]] || return 0
  if api GET "/$1/$2"; then
    jq -e --arg gone "$3" '.status as $status | $gone / " " | index($status)' "$work/answer" >/dev/null 2>&1 || found+=" $2"
  elif [ "$http" != 404 ] && ! jq -e '.code == "not_found"' "$work/answer" >/dev/null 2>&1; then
    left+=("$1 $2: the service did not say ($(why))")
  fi
}

sweep_instances() {
  local id body gone='deleted discontinued notfound'
  look /instances hostname "$instance" "$gone"
  look_closer instances "$instance" "$gone"
  for id in $found; do
    left+=("instance $id")
    instance=$id
    [ "$unsure" != instances ] || unsure=''
    if [ -z "$volume" ] && api GET "/instances/$id"; then
      learn_volume "$(jq -r '.os_volume_id? // empty' "$work/answer" 2>/dev/null)"
    fi
    body="{\"id\": [\"$id\"], \"action\": \"delete\", \"delete_permanently\": true"
    [ -z "$volume" ] || body+=", \"volume_ids\": [\"$volume\"]"
    api PUT /instances "$body}" || true
  done
}

# sweep_volumes: also those in the trash, where they may still cost. Refused by the service while the instance is there.
sweep_volumes() {
  local id list all=''
  for list in /volumes /volumes/trash; do
    look "$list" name "$volume" "$([ "$list" = /volumes/trash ] || echo deleted)"
    all+=" $found"
  done
  found=$all
  look_closer volumes "$volume" deleted
  for id in $(tr ' ' '\n' <<<"$found" | sort -u); do
    left+=("volume $id")
    api PUT /volumes "{\"id\": \"$id\", \"action\": \"delete\", \"is_permanent\": true}" || true
  done
}

sweep_keys() {
  local id
  look /ssh-keys name "$key" ''
  for id in $found; do
    left+=("SSH key $id")
    [ "$unsure" != ssh-keys ] || unsure=''
    api DELETE "/ssh-keys/$id" || true
  done
}

# teardown: deletes until a whole look at the service finds nothing of ours. Fails with $left if that did not happen in time.
teardown() {
  local settled=$SECONDS end pause=$BACKOFF_MS
  deadline=0 TRIES=1
  [ -z "$unsure" ] || settled=$((SECONDS + SETTLE_S))
  end=$((settled + TEARDOWN_S))
  say "deleting what was made as $name"
  while :; do
    left=()
    sweep_instances
    sweep_volumes
    sweep_keys
    if ((${#left[@]} == 0)) && [[ -z $unsure || $SECONDS -ge $settled ]]; then return 0; fi
    ((SECONDS < end)) || return 1
    nap "$pause"
    pause=$(longer "$pause")
  done
}

on_exit() {
  local status=$? thing
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  [ -z "$child" ] || kill "$child" 2>/dev/null
  if [ -n "$state" ]; then
    if teardown; then
      rm -f "$state" "$state.new"
      say "instance, OS volume and SSH key are gone"
    else
      status=4
      say "WARNING: NOT ALL IS KNOWN TO BE GONE. IT MAY STILL COST MONEY. Everything is named $name."
      for thing in "${left[@]}"; do say "  left: $thing"; done
      say "Look in the console of the service, and run: $0 --cleanup $state"
    fi
  fi
  rm -rf "$work"
  exit "$status"
}

main() {
  parse_arguments "$@"
  check_arguments
  [ -n "$cleanup" ] || check_tree
  make_work_folder
  trap on_exit EXIT
  trap 'die 130 "interrupted"' INT
  trap 'die 143 "terminated"' TERM
  trap 'die 129 "the terminal is gone"' HUP
  trap '' PIPE # a reader that went away must not end the deletion
  if [ -n "$cleanup" ]; then
    load_state "$cleanup"
    exit 0 # on_exit does it
  fi
  deadline=$((SECONDS + $(awk -v minutes="$minutes" 'BEGIN { printf "%d", minutes * 60 + 0.999 }')))
  quote
  choose_location
  prepare
  create
  wait_until_running
  wait_for_login
  run_on_vm
  say "the gate passed"
}

main "$@"
