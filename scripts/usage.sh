# Sourced ahead of any cd. Needs nothing but bash and coreutils: `--help` works before anything is installed.
usage_of=$(readlink -f "$0")

# usage: the comment at the head of the script.
usage() {
  local line
  while IFS= read -r line; do
    case $line in
    '#!'*) ;;
    '#'*) line=${line#'#'} && echo "${line# }" ;;
    *) return 0 ;;
    esac
  done <"$usage_of"
}

# unknown ARGUMENT: for what is none of the script's. Asked for help it gives that, all else ends with 2.
unknown() {
  case $1 in
  -h | --help) usage; exit 0 ;;
  esac
  echo "${usage_of##*/}: unknown argument '$1' (see --help)" >&2
  exit 2
}

# at_most N ARGUMENT...: of a script that has no options, and names for N things.
at_most() {
  local most=$1
  shift
  local argument
  for argument; do [[ $argument != -* ]] || unknown "$argument"; done
  [ $# -le "$most" ] || unknown "${@:most+1:1}"
}
