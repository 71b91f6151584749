# Sourced. with_progress WHAT LOG COMMAND...: runs it, and says every half minute for how long, and the last line of LOG.
# Nobody is killed for it: a child that a signal meets before it has put off its parent's EXIT trap would run that.
with_progress() {
  local what=$1 log=$2 begin=$SECONDS status=0 end ticker
  shift 2
  exec {end}> >(
    while :; do
      woken=0
      read -r -t 30 || woken=$?
      [ $woken -gt 128 ] || break  # not after half a minute: the command has ended, or its script
      echo "  $what, $((SECONDS - begin)) s: $(tail -n 1 "$log" 2>/dev/null | tr -d '\r' | cut -c 1-120)"
    done
  )
  ticker=$!
  "$@" {end}>&- || status=$?
  exec {end}>&-
  wait $ticker 2>/dev/null || true
  return $status
}
