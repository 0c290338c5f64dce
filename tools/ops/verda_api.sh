# The client of Verda's HTTP API that verda_cuda_gate.sh is built on: a token, requests that are tried again, and pauses.
# shellcheck shell=bash

API=${KIPP_VERDA_API:-https://api.verda.com/v1}
BACKOFF_MS=${KIPP_VERDA_BACKOFF_MS:-1000} # the first pause after a failure; it doubles, up to 15 times this
REQUEST_S=${KIPP_VERDA_REQUEST_S:-30}     # one request
TRIES=5

work=''     # a private folder, made by make_work_folder
http=000    # status of the last answer; 000: no whole answer
deadline=0  # of $SECONDS; 0: none
token_until=0 client_id='' client_secret=''

say() { printf 'verda_cuda_gate: %s\n' "$*" >&2 || true; }

die() {
  local status=$1
  shift
  say "$*"
  exit "$status"
}

# nap MS: a pause that a signal ends.
nap() {
  sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" >/dev/null 2>&1 </dev/null &
  wait $! || true
}

longer() { echo $(($1 * 2 < BACKOFF_MS * 15 ? $1 * 2 : BACKOFF_MS * 15)); }

check_time() { ((deadline == 0 || SECONDS < deadline)) || die 3 "the time limit is over"; }

is_id() { [[ $1 =~ ^[A-Za-z0-9-]{8,64}$ ]]; }

# check_api: credentials go over TLS only, or to a stand-in on this machine.
check_api() {
  local stand_in='^http://(127\.0\.0\.1|localhost)(:[0-9]+)?(/[a-z0-9/]*)?$'
  [[ $API =~ ^https://[A-Za-z0-9][A-Za-z0-9._:/-]*$ || $API =~ $stand_in ]] ||
    die 2 "KIPP_VERDA_API must be an https address: the credentials go there"
}

take_credentials() {
  [[ -n ${VERDA_CLIENT_ID:-} && -n ${VERDA_CLIENT_SECRET:-} ]] ||
    die 2 "VERDA_CLIENT_ID and VERDA_CLIENT_SECRET must be in the environment"
  client_id=$VERDA_CLIENT_ID client_secret=$VERDA_CLIENT_SECRET
  unset VERDA_CLIENT_ID VERDA_CLIENT_SECRET # no child but one jq sees them
}

make_work_folder() { work=$(mktemp -d -t kipp-verda.XXXXXX); }

# curl_api ARGUMENTS: one request; its HTTP status into $http, 000 if there was no whole answer.
curl_api() {
  http=$(curl -q --silent --show-error --proto "=${API%%:*}" --connect-timeout 10 --max-time "$REQUEST_S" \
    --max-filesize 10000000 --write-out '%{http_code}' "$@" 2>"$work/curl-error") || http=000
}

# login: a token into the header file that requests send, unless the last one still lasts. Fails with $http set.
login() {
  ((SECONDS >= token_until)) || return 0
  local said
  curl_api --header 'Content-Type: application/json' --data-binary @- --output "$work/token" "$API/oauth2/token" < <(
    CLIENT_ID=$client_id CLIENT_SECRET=$client_secret jq -n \
      '{grant_type: "client_credentials", client_id: env.CLIENT_ID, client_secret: env.CLIENT_SECRET}'
  )
  : >"$work/answer" # what is said about credentials is not shown
  [[ $http == 2?? ]] || return 1
  if ! said=$(jq -er '(.expires_in // 600 | floor), (.access_token | select(test("^[!-~]+$")))' "$work/token" 2>/dev/null) ||
    [[ ! $said =~ ^([0-9]+)$'\n'(.+)$ ]]; then
    http=000
    return 1
  fi
  rm -f "$work/token"
  echo "Authorization: Bearer ${BASH_REMATCH[2]}" >"$work/bearer"
  token_until=$((SECONDS + BASH_REMATCH[1] - 30))
}

# api METHOD PATH [BODY]: the answer's body into $work/answer and its status into $http; 0 if that is 2xx. Tries again after
# failures that may pass, but not a POST that may have had its effect.
api() {
  local try pause=$BACKOFF_MS may_repeat fresh=0
  local arguments=(--request "$1" --header "@$work/bearer" --output "$work/answer")
  if (($# > 2)); then arguments+=(--header 'Content-Type: application/json' --data-binary "$3"); fi
  for ((try = 1; ; try++)); do
    may_repeat=1
    : >"$work/answer"
    if login; then
      curl_api "${arguments[@]}" "$API$2"
      [ "$1" != POST ] || may_repeat=0
    fi
    case $http in
      2??) return 0 ;;
      401) # an expired token; two fresh ones refused are credentials refused
        token_until=0
        if ((fresh++ == 0)); then continue; fi
        ;;
      429) ;;
      000 | 5??) ((may_repeat)) || return 1 ;;
      *) return 1 ;;
    esac
    ((try < TRIES)) || return 1
    check_time
    nap "$pause"
    pause=$(longer "$pause")
  done
}

# why: what is known of the last failure, without control characters.
why() {
  local text
  if [ "$http" = 000 ]; then
    text="no answer ($(head -c 200 "$work/curl-error"))"
  else
    text="HTTP $http $(jq -r '[.code?, .message?] | map(strings) | join(": ")' "$work/answer" 2>/dev/null | head -c 200)"
  fi
  tr -cd '[:print:]' <<<"$text"
}

# answer_id: the id in an answer that is the id alone, as text or JSON, or an object with it.
answer_id() {
  local id
  id=$(tr -d '[:space:]"' <"$work/answer")
  is_id "$id" || id=$(jq -r '.id? // empty' "$work/answer" 2>/dev/null)
  is_id "$id" && echo "$id"
}
