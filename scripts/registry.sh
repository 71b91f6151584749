# Why a package registry gave nothing, from what apt-get or pip printed. Sourced by setup.sh and horovod.sh.
#
# registry_verdict LOG: prints `unreachable` where nobody answered (no name, no route, no listener, no answer in time: what needs the
# registry may be skipped), `certificate` where the answer was not trusted, `failed` for everything else. Only the first is no failure.
registry_verdict() {
  local unreachable='Temporary failure (in name resolution|resolving)|Name or service not known|No address associated with hostname|Could not resolve'
  unreachable+='|Network is unreachable|No route to host|[Cc]onnection (refused|timed out)|timed out[.]|(Connect|Read)Timeout'
  unreachable+='|Unable to connect|Could not connect|Cannot initiate the connection'
  # First: pip's and apt's texts of a refused certificate speak of connections and retries, too.
  if grep -qiE 'CERTIFICATE_VERIFY_FAILED|SSLError|confirming the ssl certificate|certificate verification failed' "$1"; then
    echo certificate
  elif grep -qE "$unreachable" "$1"; then
    echo unreachable
  else
    echo failed
  fi
}

# registry_fail LOG WHAT: says why WHAT could not be had and leaves with 77 (unreachable) or 1, by the caller's fail STATUS TEXT.
registry_fail() {
  tail -n 8 "$1" >&2
  case $(registry_verdict "$1") in
  unreachable) fail 77 "skipped: no registry can be reached to get $2" ;;
  certificate) fail 1 "cannot get $2: the registry's certificate is not trusted here. Install the certificate of the proxy between, or name it
(pip: PIP_CERT=FILE; apt-get: a .crt file in /usr/local/share/ca-certificates, then update-ca-certificates)" ;;
  *) fail 1 "cannot get $2; the registry's answer is above" ;;
  esac
}
