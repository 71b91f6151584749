# wheel_venv WHEEL FOLDER: a Python environment with that wheel, made once. Sourced, with registry.sh and a fail STATUS TEXT.
wheel_venv() {
  local wheel=$1 venv=$2 log
  [ ! -e "$venv/done" ] || return 0
  log=$(dirname "$venv")/log
  mkdir -p "$(dirname "$venv")"
  python3 -m venv "$venv" >"$log" 2>&1 || fail 77 "skipped: no venv can be made: $(tail -n 1 "$log")"
  "$venv/bin/pip" install --quiet --retries 0 --timeout 10 "$wheel" >"$log" 2>&1 || registry_fail "$log" "the wheel $wheel"
  touch "$venv/done"
}
