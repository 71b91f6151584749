#!/usr/bin/env bash
# registry.sh ROOT: a registry that nobody answers for is told from one whose answer was bad. The lines are pip's and apt-get's own.
set -uo pipefail
source "$1/scripts/registry.sh"
log=$(mktemp) wrong=0
trap 'rm -f "$log"' EXIT
fail() { echo "$2"; exit "$1"; }

expect() {  # VERDICT STATUS TEXT
  printf 'Looking in indexes\n%s\nERROR: No matching distribution found for horovod==0.28.1\n' "$3" >"$log"
  local verdict status=0
  verdict=$(registry_verdict "$log")
  (registry_fail "$log" thing) >/dev/null 2>&1 || status=$?
  [ "$verdict $status" = "$1 $2" ] || { echo "$verdict, status $status, not $1, $2: $3"; wrong=1; }
}
expect unreachable 77 "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError('<...>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/horovod/"
expect unreachable 77 "NewConnectionError('<...>: Failed to establish a new connection: [Errno 113] No route to host')"
expect unreachable 77 "NewConnectionError('<...>: Failed to establish a new connection: [Errno 101] Network is unreachable')"
expect unreachable 77 "ConnectTimeoutError(<...>, 'Connection to pypi.org timed out. (connect timeout=15)')"
expect unreachable 77 "ReadTimeoutError(\"HTTPSConnectionPool(host='pypi.org', port=443): Read timed out. (read timeout=15)\")"
expect unreachable 77 "ProxyError('Cannot connect to proxy.', NewConnectionError('<...>: Failed to establish a new connection: [Errno 111] Connection refused'))"
expect unreachable 77 "Err:1 http://deb.debian.org/debian bookworm InRelease  Temporary failure resolving 'deb.debian.org'"
expect unreachable 77 "Could not connect to deb.debian.org:80 (1.2.3.4), connection timed out"
expect certificate 1 "WARNING: Retrying (Retry(total=4)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:992)'))': /simple/horovod/"
expect certificate 1 "Could not fetch URL https://pypi.org/simple/pip/: There was a problem confirming the ssl certificate: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded with url: /simple/pip/ - skipping"
expect certificate 1 "Certificate verification failed: The certificate is NOT trusted. Could not handshake: Error in the certificate verification. Unable to connect to deb.debian.org:443"
expect failed 1 "ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden'))"
expect failed 1 "HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded with url: /simple/horovod/ (Caused by ResponseError('too many 503 error responses'))"
expect failed 1 "ERROR: Hash mismatch"
expect failed 1 ""
exit $wrong
