# Sourced. with_progress WHAT LOG COMMAND...: runs it, and says every half minute for how long, and the last line of LOG.
with_progress() {
  local what=$1 log=$2 begin=$SECONDS status=0 ticker
  shift 2
  while sleep 30 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do  # not longer than the script that is waited for
    echo "  $what, $((SECONDS - begin)) s: $(tail -n 1 "$log" 2>/dev/null | tr -d '\r' | cut -c 1-120)"
  done &
  ticker=$!
  "$@" || status=$?
  kill $ticker 2>/dev/null
  wait $ticker 2>/dev/null || true
  return $status
}
