#!/usr/bin/env bash
# command.sh PART CRIMP LIBRARY MPIRUN: what `crimp PART` prints and returns. Exit 77: this cannot be tried here.
set -uo pipefail
part=$1 crimp=$2 library=$3 mpirun=$4
here=$(cd "$(dirname "$0")" && pwd) failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
for name in $(env | grep -oE '^CRIMP_[A-Z_]+'); do unset "$name"; done
unset LD_PRELOAD
export MPIRUN=$mpirun OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=(-np 2 --oversubscribe)

# expect CODE PATTERN... -- COMMAND...: the exit code, and every pattern in what it says (standard output and error together).
# A pattern that begins with ! must not be there.
expect() {
  local code=$1 patterns=() said got
  shift
  while [ "$1" != -- ]; do patterns+=("$1") && shift; done
  shift
  said=$("$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] || { printf 'exit %s instead of %s: %s\n%s\n' "$got" "$code" "$*" "$said"; failed=1; }
  for p in "${patterns[@]}"; do
    if [ "${p#!}" != "$p" ]; then
      ! grep -qE -e "${p#!}" <<<"$said" || { printf 'found, and should not be: %s: %s\n%s\n' "${p#!}" "$*" "$said"; failed=1; }
    else
      grep -qE -e "$p" <<<"$said" || { printf 'not found: %s: %s\n%s\n' "$p" "$*" "$said"; failed=1; }
    fi
  done
}
# json FILE KEY...: the file is JSON and has the keys, written a.0.b
json() { cmake "-DFILE=$1" "-DKEYS=${*:2}" -P "$here/json_keys.cmake" || failed=1; }
# A library built with a sanitizer can only be preloaded behind the sanitizer's runtime; that is not what is tried here.
sanitized() { ldd "$library" | grep -E 'lib[alt]san' >/dev/null; }  # not grep -q: it would stop ldd, which counts as a failure
legal_codecs() { "$crimp" bench codec --codec no_such_codec 2>&1 | sed 's/.*legal: //; s/ (crimp.*//; s/,//g'; }

run_part() {
  local dry=("$crimp" run --dry-run)
  expect 0 "^$mpirun -np 4 -x LD_PRELOAD=$library -x CRIMP_CODEC=3lc ./program --codec x$" -- \
    "${dry[@]}" -np 4 --codec 3lc -- ./program --codec x
  expect 0 ' -host a,b:2 --mca btl self,tcp -x' "CRIMP_REPORT=$work/r.json" "CRIMP_TRACE=/t.json" 'CRIMP_CHUNK=1M' \
    -- env CRIMP_CHUNK=1M "${dry[@]}" --report r.json -host a,b:2 --trace=/t.json --mca btl self,tcp -- ./program
  expect 0 'prog one : -x LD_PRELOAD=[^ ]* -x CRIMP_CODEC=fp16 -np 1 prog two' -- \
    "${dry[@]}" --codec fp16 -np 1 -- prog one : -np 1 prog two
  # Each program of several has its own preloads and settings; what its own arguments say is not the launcher's.
  expect 0 "-x LD_PRELOAD=one.so:$library -x CRIMP_CODEC=fp16 true -x LD_PRELOAD=z : -x LD_PRELOAD=two.so:$library -x CRIMP_CODEC=fp16 -np 1 true -x LD_PRELOAD=z : -x LD_PRELOAD=one.so:$library -np 1 -x CRIMP_CODEC=bf16 true\$" \
    -- echo "$("${dry[@]}" --codec fp16 -x LD_PRELOAD=one.so -np 1 -- true -x LD_PRELOAD=z : -np 1 -x LD_PRELOAD=two.so true -x LD_PRELOAD=z : -np 1 -x CRIMP_CODEC=bf16 true)"
  expect 2 "codec 'bogus' is not known" -- "${dry[@]}" -np 1 -- true : -x CRIMP_CODEC=bogus -np 1 true
  # Settings by the first program's -x are all programs', as its preloads are; another's own are its alone.
  expect 0 " -x CRIMP_CODEC=bf16 -x CRIMP_CHUNK -np 1 -x LD_PRELOAD=$library true : -x LD_PRELOAD=$library -x CRIMP_CODEC=bf16 -x CRIMP_CHUNK=1M -np 1 true : -x LD_PRELOAD=$library -x CRIMP_CHUNK=1M -np 1 -x CRIMP_CODEC=8bit true\$" \
    -- env CRIMP_CHUNK=1M CRIMP_CODEC=bogus "${dry[@]}" -x CRIMP_CODEC=bf16 -x CRIMP_CHUNK -np 1 -- true : -np 1 true : -np 1 -x CRIMP_CODEC=8bit true
  expect 0 ": -x LD_PRELOAD=$library -x CRIMP_CODEC=bf16 -np 1 -x CRIMP_CHUNK=2M true\$" -- env CRIMP_CODEC=bogus "${dry[@]}" -x CRIMP_CODEC=bf16 -np 1 -- true : -np 1 -x CRIMP_CHUNK=2M true
  expect 0 '-x LD_PRELOAD_LOG=1 -x LD_PRELOAD=' -- "${dry[@]}" -x LD_PRELOAD_LOG=1 -- ./program
  # Nothing behind an option's = is an empty value, not the next word.
  expect 0 " -np 2 .*-x CRIMP_REPORT= ./program$" -- "${dry[@]}" --report= -np 2 -- ./program
  expect 2 'hostfile names no file' -- "${dry[@]}" --hostfile= -np 2 -- ./program
  expect 0 "'a b'" '!CRIMP_CODEC' -- "${dry[@]}" -- ./program 'a b'
  # What the user exports by hand is exported once, and other preloads keep their place, an MPI library behind Crimp.
  expect 0 '-x CRIMP_CODEC=bf16' '!CRIMP_CODEC=fp16' -- env CRIMP_CODEC=fp16 "${dry[@]}" -x CRIMP_CODEC=bf16 -- ./program
  expect 0 "LD_PRELOAD=tool.so:$library:libmpi.so.40 " '!LD_PRELOAD.*LD_PRELOAD' -- \
    "${dry[@]}" -x LD_PRELOAD=tool.so:libmpi.so.40 -- ./program

  expect 0 '-x CRIMP_CODEC=none' -- "${dry[@]}" --codec none -- ./program
  expect 2 'none is no codec' 'fp32' -- "${dry[@]}" --codec none:memory=none -- ./program
  expect 2 'not known' 'fp16' '3lc' -- "${dry[@]}" --codec 4lc -- ./program
  expect 2 'legal is 0.25 <= s < 2' -- "${dry[@]}" --codec 3lc:s=7 -- ./program
  # What would switch a whole job off is said before it is started, whoever sets it.
  expect 2 "CRIMP_RULES: codec 'zip' is not known" -- "${dry[@]}" --codec 3lc --rules '*=zip' -- ./program
  expect 2 "CRIMP_RULES: .foo. is no rule" -- "${dry[@]}" --codec 3lc --rules foo -- ./program
  expect 2 "CRIMP_ALGORITHM is 'allgatherr', did you mean 'allgather'" -- "${dry[@]}" --codec 3lc --algorithm allgatherr -- ./program
  expect 2 "CRIMP_ALGORITHM is 'homomorphic', which cannot run CRIMP_CODEC=3lc" -- "${dry[@]}" --codec 3lc --algorithm homomorphic -- ./program
  expect 2 "CRIMP_MERGE is 'bytes=16MB'" -- "${dry[@]}" --codec 3lc --merge bytes=16MB -- ./program
  expect 2 "CRIMP_LADDER: codec 'zip'" -- "${dry[@]}" --ladder 'zip;3lc' --control delay -- ./program
  expect 2 "CRIMP_CODEC: codec '99zip'" -- "${dry[@]}" --codec 3lc -x CRIMP_CODEC=99zip -- ./program
  expect 0 'CRIMP_CODEC=fp16' -- env CRIMP_CODEC=zip "${dry[@]}" -x CRIMP_CODEC=fp16 -- ./program
  expect 2 CRIMP_CHUNK legal -- env CRIMP_CHUNK=seven "${dry[@]}" -- ./program
  expect 0 "CRIMP_CODEK is not a setting.*'CRIMP_CODEC'" -- env CRIMP_CODEK=3lc "${dry[@]}" -- ./program
  expect 2 "behind '--'" -- "${dry[@]}" -np 2 ./program
  expect 2 "behind '--'" -- "${dry[@]}" -np 2 --
  expect 2 'does not exist' -- "${dry[@]}" --library nowhere.so -- ./program
  for other in /dev/null . "$0" /proc/self/exe "$(ldd "$library" | sed -n 's/.*libmpi[.]so.* => \([^ ]*\).*/\1/p')"; do expect 2 "no library of Crimp's" -- "${dry[@]}" --library "$other" -- ./program; done
  for file in nowhere.json .; do expect 2 'CRIMP_REPLAY .--replay. is .*no file here' -- "${dry[@]}" --replay $file -- ./program; done
  # Launchers are told by what they say of themselves.
  printf '#!/bin/sh\necho slurm 22.05.8\n' >srun && printf '#!/bin/sh\necho "HYDRA build details:"\n' >hydra && chmod +x srun hydra
  expect 0 '^./srun -n 2 /usr/bin/env LD_PRELOAD=[^ ]*libcrimp.so CRIMP_CODEC=fp16 python3 -c 1,2$' -- env MPIRUN=./srun LD_PRELOAD= "${dry[@]}" -n 2 --codec fp16 -- python3 -c 1,2
  expect 2 "libcrimp.so[.0-9]* is built for Open MPI .libmpi.so.40., and the job is MPICH's" -- env MPIRUN=./hydra "${dry[@]}" --library "$library" -n 2 -- python3
  expect 127 'could not be started: No such file or directory; MPIRUN names it' -- env MPIRUN=no-such-mpirun "$crimp" run -- ./program
  run_found
  run_settings
  run_hosts
  expect 0 'MPIRUN' '--dry-run' -- "$crimp" run --help

  # What a program names as its dynamic linker is run where the program is, and not to print a line.
  if command -v "${CC:-cc}" >/dev/null; then
    printf '#!/bin/sh\ntouch "%s/ran"\n' "$work" >interpreter && chmod +x interpreter
    echo 'int main(void) { return 0; }' | "${CC:-cc}" -x c - -o named -Wl,--dynamic-linker="$work/interpreter"
    expect 0 'LD_PRELOAD=' -- "${dry[@]}" -- ./named
    [ ! -e ran ] || { echo "crimp run --dry-run has run what a program names as its dynamic linker"; failed=1; }
  fi

  sanitized && return
  # shellcheck disable=SC2016  # for the ranks' shell
  expect 3 "A=x y;\\\$z codec fp16 preload $library" -- \
    env 'CRIMP_TEXT=x y;$z' "$crimp" run "${mpi[@]}" --codec fp16 -- sh -c 'echo "A=$CRIMP_TEXT codec $CRIMP_CODEC preload $LD_PRELOAD"; exit 3'
}

# Options that are settings say what the table says, are checked by it, and name files as ranks elsewhere must have them.
run_settings() {
  local dry=("$crimp" run --dry-run) help name option
  help=$("$crimp" run --help | tr -s ' \n' ' ')
  for name in $("$crimp" run --help | grep -oE 'Sets CRIMP_[A-Z_]+:' | grep -oE 'CRIMP_[A-Z_]+' | grep -v CRIMP_STATUS); do
    option=--$(tr 'A-Z_' 'a-z-' <<<"${name#CRIMP_}")
    expect 0 "CRIMP_$(tr 'a-z-' 'A-Z_' <<<"${option#--}")=" -- "${dry[@]}" "$option" "$(legal_value "$name")" -- ./program
    [[ $help == *"Sets $name: $(table_text "$name"); legal: "* ]] || { echo "crimp run --help says something else of $name than the table"; failed=1; }
  done
  [ -n "${option:-}" ] || { echo "crimp run --help has no settings"; failed=1; }
  expect 0 'CRIMP_PROFILE=aggressive -x CRIMP_THREADS=2|CRIMP_THREADS=2 -x CRIMP_PROFILE=aggressive' '!CRIMP_CODEC' -- "${dry[@]}" --profile aggressive --threads 2 -- ./program
  expect 2 "CRIMP_PROFILE is 'fast', legal is: off, safe, balanced, aggressive" -- "${dry[@]}" --profile fast -- ./program
  expect 2 "CRIMP_THREADS is '0'" -- "${dry[@]}" --threads 0 -- ./program
  expect 2 'threads' -- "${dry[@]}" --threads -- ./program
  # The status: a file is absolute; without a value standard error, live where that is a terminal.
  expect 0 "CRIMP_STATUS=$work/s " -- "${dry[@]}" --status=s -- ./program
  expect 0 "CRIMP_STATUS=stderr " -- "${dry[@]}" --status -- ./program
  expect 0 "CRIMP_STATUS=off " -- "${dry[@]}" --status off -- ./program
  expect 0 "CRIMP_STATUS=off " -- "${dry[@]}" --status=0 -- ./program  # as the variable takes it: no file of that name
  expect 0 "CRIMP_STATUS=stderr " -- "${dry[@]}" --status=yes -- ./program
  ! command -v script >/dev/null || expect 0 'CRIMP_STATUS=live ' -- script -qec "$crimp run --dry-run --status -np 1 -- ./program" /dev/null
}
legal_value() {
  case $1 in
  CRIMP_PROFILE) echo safe ;; CRIMP_CODEC) echo fp16 ;; CRIMP_RULES) echo '<9=none' ;; CRIMP_ALGORITHM) echo two_shot ;; CRIMP_QUALITY) echo exact ;; CRIMP_MERGE) echo y=2 ;;
  CRIMP_CONTROL) echo delay ;; CRIMP_LADDER) echo 'fp16; bf16' ;; CRIMP_PROGRESS) echo thread ;; CRIMP_ERROR_FEEDBACK) echo 0 ;; CRIMP_MIN_COUNT | CRIMP_THREADS) echo 7 ;; CRIMP_LOG) echo debug ;;
  CRIMP_CONFIG) echo /dev/null ;; CRIMP_REPLAY) echo "$0" ;; *) echo file ;;
  esac
}
table_text() { "$crimp" info --env --markdown | grep -F "| \`$1\` |" | sed 's/ |$//; s/.* | //; s/\\|/|/g' | tr -s ' '; }  # its meaning

# A launcher that is found on the PATH says which library of MPICH's fits, by the MPI that lies beside it, which is
# preloaded as well where the linker knows none: of a script, not of a program that finds one.
run_found() {
  local of_mpich="${library%/*}"/crimp/libmpi.so.12/libcrimp.so file=$work/mpich/lib/libmpi.so.12
  [ -e "$of_mpich" ] || return
  mkdir -p mpich/bin mpich/lib && cp hydra mpich/bin/mpirun && touch "$file"
  ldd "$of_mpich" | grep 'libmpi[.]so[.]12 => not found' >/dev/null || file=
  for named in '' "$work/mpich/bin/mpirun"; do
    expect 0 "LD_PRELOAD $of_mpich${file:+:$file} " -- env -u LD_PRELOAD MPIRUN="$named" PATH="$work/mpich/bin:$PATH" "$crimp" run --dry-run -n 2 -- python3
  done
  ln -s "$work/mpich/bin/mpirun" linked
  expect 0 "LD_PRELOAD tool.so:$of_mpich${file:+:$file} " -- env MPIRUN=./linked LD_PRELOAD=tool.so "$crimp" run --dry-run -n 2 -- python3
}

# A file of hosts in both forms, for launchers of three.
run_hosts() {
  local dry=("$crimp" run --dry-run)
  printf '# nodes\n\nnode1 slots=2 max_slots=4\nnode2\n' >open && printf 'node1:2 # two\nnode2:3\n' >colons
  expect 0 "^$mpirun --hostfile open -np 2" -- "${dry[@]}" --hostfile open -np 2 -- ./program
  expect 0 "^$mpirun --host node1:2,node2:3 -np 2" -- "${dry[@]}" --hostfile colons -np 2 -- ./program
  expect 0 '^./srun --nodelist=node1,node2 -n 2 /usr/bin/env' -- env MPIRUN=./srun "${dry[@]}" --hostfile colons -n 2 -- python3
  printf 'node1 slots = 2 max_slots=4\nnode2 cpu=3 user-name=root slots-max=8\n' >spaces
  expect 0 '^./srun --nodelist=node1,node2 ' -- env MPIRUN=./srun "${dry[@]}" --hostfile spaces -n 2 -- python3
  local of_mpich=("${library%/*}"/crimp/libmpi*.so.*/libcrimp.so)  # none where this build has no MPICH
  if [ -e "${of_mpich[0]}" ]; then
    expect 0 'node1:2,node2:3' -- env MPIRUN=./hydra "${dry[@]}" --hostfile spaces -n 2 -- python3
    expect 0 '-genv LD_PRELOAD ([^ ]*)/libcrimp.so true : -env LD_PRELOAD two.so:\1/libcrimp.so -n 1 true : -n 1 true$' -- \
      env MPIRUN=./hydra "${dry[@]}" -n 1 -- true : -n 1 -env LD_PRELOAD two.so true : -n 1 true
    expect 2 "codec 'bogus' is not known" -- env CRIMP_CODEC=bogus MPIRUN=./hydra "${dry[@]}" -env CRIMP_CODEC 8bit -n 1 -- true : -n 1 true
    expect 0 -- env CRIMP_CODEC=bogus MPIRUN=./hydra "${dry[@]}" -genv CRIMP_CODEC 8bit -n 1 -- true : -n 1 true
  else expect 2 'built without a library' -- env MPIRUN=./hydra "${dry[@]}" --hostfile spaces -n 2 -- python3; fi
  expect 2 "several programs in one job" -- env MPIRUN=./srun "${dry[@]}" -n 2 -- ./a : -n 2 ./b
  printf 'rank 0=node1 slot=0\n' >ranks && expect 2 'line 1' -- "${dry[@]}" --hostfile ranks -- ./program
  expect 2 'no file that can be read' -- "${dry[@]}" --hostfile nowhere -- ./program
  expect 2 'no file that can be read' -- "${dry[@]}" --hostfile . -- ./program
  printf '\n# none\n' >none && expect 2 'no host in it' -- "${dry[@]}" --hostfile none -- ./program
  printf 'node1\nnode2:many\n' >bad && expect 2 "line 2 is 'node2:many'; legal is: HOST" -- "${dry[@]}" --hostfile bad -- ./program
  printf 'node1\nnode3:2:x\n' >bad && expect 2 "line 2 is 'node3:2:x'; legal is: HOST" -- "${dry[@]}" --hostfile bad -- ./program
  printf 'fe80::1%%eth0\n2001:db8::2\n' >six && expect 0 '^./srun --nodelist=fe80::1%eth0,2001:db8::2 ' -- env MPIRUN=./srun "${dry[@]}" --hostfile six -n 2 -- python3
  printf '[fe80::1%%eth0]:3\n[::1]\n' >six && expect 0 "^$mpirun --host '?\[fe80::1%eth0\]:3,\[::1\]'? " -- "${dry[@]}" --hostfile six -- ./program
  for bad in '[::1]:' '[::1]:0' '[::1:4' '[::x]:4'; do echo "$bad" >bad && expect 2 "line 1 is" -- "${dry[@]}" --hostfile bad -- ./program; done
  printf 'node1 slots=0\n' >bad && expect 2 'line 1' -- "${dry[@]}" --hostfile bad -- ./program
}

# What bash really offers for a line: COMPREPLY of the script's function.
offered() {  # LINE
  bash --norc -c '
    eval "$("$1" completion bash)" && PATH=$(dirname "$1"):$PATH
    COMP_LINE=$2 COMP_POINT=${#2} COMPREPLY=()
    _crimp && printf "%s\n" "${COMPREPLY[@]}"' bash "$crimp" "$1" 2>/dev/null
}
# offers LINE WORD...: all of them, and none that begins with !.
offers() {
  local line=$1 got word
  shift
  got=$(offered "$line")
  for word in "$@"; do
    if [ "${word#!}" != "$word" ]; then
      ! grep -qxF -e "${word#!}" <<<"$got" || { printf "'%s' is completed to %s, and should not be:\n%s\n" "$line" "$word" "$got"; failed=1; }
    else
      grep -qxF -e "$word" <<<"$got" || { printf "'%s' is not completed to %s:\n%s\n" "$line" "$word" "$got"; failed=1; }
    fi
  done
}
completion_part() {
  touch report.json 'with space.json' && mkdir folder
  offers 'crimp ' run info bench check completion '!complete'
  offers 'crimp re' '!run'
  offers 'crimp bench ' codec allreduce '!run'
  offers 'crimp bench codec --' --codec --count --simd '!--profile'
  # Every option of every command, and none that it does not have.
  local command option
  while read -r command; do
    while read -r option; do
      # shellcheck disable=SC2086
      "$crimp" complete -- ${command#crimp } "$option" | cut -f1 | grep -qxF -e "$option" || { echo "$command: $option is not offered"; failed=1; }
    # shellcheck disable=SC2086
    done < <("$crimp" ${command#crimp } --help | grep -oE '^ +(-[a-zA-Z],)?--[a-z-]+' | grep -oE -e '--[a-z-]+')
  done < <("$crimp" --help | grep -oE '^  crimp [a-z]+( [a-z]+)?' | sed 's/^  //')
  offers 'crimp run --co' --codec --control --config '!--count'
  offers 'crimp run --codec 3' 3lc '!fp16'
  offers 'crimp run --codec 3lc:' s= entropy= memory=
  offers 'crimp run --codec 3lc:s=1,' 1,entropy= '!1,s='
  offers 'crimp run --codec 3lc:memory=' none residual '!magic'
  offers 'crimp run --codec=fp' fp16 fp32 fp8
  offers 'crimp run --algorithm ' auto two_shot hierarchical
  offers 'crimp run --profile ' off safe balanced aggressive
  offers 'crimp run --merge ' off auto y= bytes=
  offers 'crimp run --log=' debug info
  offers 'crimp run --report rep' report.json
  offers 'crimp run --report with' 'with space.json'
  offers 'crimp run -np 4 -- pri' printf
  offers 'crimp completion ' bash zsh fish
  offers 'crimp model --codec 3lc,fp' '3lc,fp16'
  for word in off auto all; do "$crimp" complete -- run --merge '' | grep -qx $word || { echo "no $word"; failed=1; }; done
  "$crimp" complete -- run --codec 3lc: | grep -qP '^3lc:s=\t.*legal: 0.25 <= s < 2' || { echo "a parameter has no text"; failed=1; }
  expect 2 'legal is: bash, zsh, fish' -- "$crimp" completion
  expect 2 'csh' -- "$crimp" completion csh
  bash -n <("$crimp" completion bash) || failed=1
  if command -v zsh >/dev/null; then
    "$crimp" completion zsh >_crimp && zsh -n _crimp || failed=1
    # What the function gives to zsh's own.
    said=$(PATH=$(dirname "$crimp"):$PATH zsh -fc 'compdef() { }; compadd() { print -rl -- "$@" }; compset() { }; _files() { print files }; source ./_crimp
      words=(crimp run --codec 3lc:) CURRENT=4 PREFIX=3lc: ; _crimp; words=(crimp run --report r) CURRENT=4 PREFIX=r; _crimp' 2>&1)
    grep -qx '3lc:s=' <<<"$said" && grep -qx files <<<"$said" || { printf 'zsh: %s\n' "$said"; failed=1; }
  else echo "not tried: zsh"; fi
  if command -v fish >/dev/null; then
    said=$(HOME=$work PATH=$(dirname "$crimp"):$PATH fish -c 'crimp completion fish | source; complete -C "crimp run --codec 3lc:"; complete -C "crimp run --prof"; complete -C "crimp run --report rep"' 2>&1)
    grep -q '^3lc:s=' <<<"$said" && grep -q '^--profile' <<<"$said" && grep -q '^report.json' <<<"$said" || { printf 'fish: %s\n' "$said"; failed=1; }
  else echo "not tried: fish"; fi
}

# Pages: of all commands and settings, as the tables say, and nothing that a formatter complains of.
man_part() {
  local page name
  "$crimp" man --all pages --header "$here/../../include/crimp/crimp.h" || failed=1
  for page in $("$crimp" man --list | tr '()' '. '); do [ -s "pages/man${page##*.}/$page" ] || { echo "no page $page"; failed=1; }; done
  for name in $("$crimp" --help | grep -oE '^  crimp [a-z]+( [a-z]+)?' | sed 's/^  crimp //; s/ /-/'); do [ -s "pages/man1/crimp-$name.1" ] || { echo "no page of crimp $name"; failed=1; }; done
  for name in $("$crimp" info --env | grep -oE '^CRIMP_[A-Z_]+'); do grep -q "fB$name" pages/man7/crimp-settings.7 || { echo "crimp-settings(7) lacks $name"; failed=1; }; done
  for name in $(legal_codecs); do grep -qx ".SS $name" pages/man7/crimp-codecs.7 || { echo "crimp-codecs(7) lacks $name"; failed=1; }; done
  for name in $(grep -oE 'crimp_[a-z_]+\(' "$here/../../include/crimp/crimp.h" | sort -u); do grep -qF "$name" pages/man3/crimp.3 || { echo "crimp(3) lacks $name"; failed=1; }; done
  expect 0 'TH CRIMP-RUN 1' 'fB.-.-codec' 'NAME' -- "$crimp" man run
  expect 0 'TH CRIMP 1' 'SH EXIT STATUS' -- "$crimp" man
  expect 2 "no page 'walk'" -- "$crimp" man walk
  expect 2 'header' -- "$crimp" man --header x
  expect 2 'cannot be read' -- "$crimp" man --all other --header nowhere
  expect 1 'cannot be written' -- "$crimp" man --all /dev/null
  command -v mandoc >/dev/null || command -v man >/dev/null || { echo "skipped: neither mandoc nor man is here"; exit 77; }
  if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning pages/man*/* >lint || { cat lint; failed=1; }
    printf '.TH X 1\n.NOSUCH\n.SH NAME\n' >planted.1 && ! mandoc -T lint -W warning planted.1 >/dev/null || { echo "mandoc does not notice a planted fault"; failed=1; }
    mandoc -T utf8 pages/man1/crimp-run.1 | col -b 2>/dev/null | grep -cE -e '--codec' >count || { echo "--codec is not printed as it is typed"; failed=1; }
  fi
  if command -v man >/dev/null && man --help 2>&1 | grep -q warnings; then
    for page in pages/man*/*; do LC_ALL=C.UTF-8 MANWIDTH=200 man --warnings -l "$page" 2>&1 >/dev/null | grep . && { echo "man complains of $page"; failed=1; }; done
  fi
}

status_of_a_new_job() {
  printf '#!/bin/sh\ncase "$1" in --version) echo "mpirun (Open MPI) 4";; *) "%s" status s;; esac\n' "$crimp" >launcher && chmod +x launcher
  local start=(env MPIRUN=./launcher "$crimp" run --library "$library" --status=s)
  echo 'crimp ended: 1:00, 7 calls compressed' >s
  expect 0 . -- "${start[@]}" --dry-run -- ./program && expect 0 'crimp ended' -- "$crimp" status s
  expect 1 'not there' '!ended' -- "${start[@]}" -- ./program
  echo 'crimp: 0:10, 7 calls compressed' >s && expect 1 'not there' -- "${start[@]}" -- ./program
  echo 'my thesis' >s && expect 2 'something else' -- "${start[@]}" -- ./program
  [ "$(cat s)" = 'my thesis' ] || { echo "crimp run --status has removed another file"; failed=1; }
  echo 'crimp ended: 1:00' >other && rm s && ln -s other s && expect 0 'ended' -- "${start[@]}" -- ./program
  [ -L s ] && [ -e other ] || { echo "crimp run --status has removed a link, or what it leads to"; failed=1; }
  rm s
}

status_part() {
  expect 1 'not there' -- "$crimp" status nothing
  expect 2 'is missing' -- "$crimp" status
  expect 2 'no regular file' -- "$crimp" status .
  echo '{"a": 1}' >other && expect 2 'something else' -- "$crimp" status other
  : >empty && expect 2 'something else' -- "$crimp" status empty
  echo 'crimp: 0:42, 7 calls compressed' >s && expect 0 '^crimp: 0:42, 7 calls compressed$' -- "$crimp" status s
  touch -d '1 hour ago' s && expect 1 'nothing new for 36[0-9][0-9] s' -- "$crimp" status s --once
  printf 'crimp ended: 1:00, 7 calls\x1b[31m\n' >s && touch -d '1 hour ago' s && expect 0 '^crimp ended: 1:00, 7 calls.\[31m$' '!nothing new' -- "$crimp" status s
  # Of a live job whose host's clock is an hour behind: something new comes while one looks.
  (for ((i = 0; i < 600; ++i)); do [ ! -e enough ] || break; echo "crimp: $i:00, 7 calls compressed" >v && touch -d '1 hour ago' v && mv v skewed; sleep 0.1; done
   echo 'crimp ended: 0:02' >v && mv v skewed) &
  until [ -e skewed ]; do sleep 0.1; done
  # More than once, because the loop may be late; an answer that goes by the host's clock is always the same.
  for _ in 1 2 3 4 5; do ! "$crimp" status skewed --once >seen || break; done
  expect 0 '^crimp: [0-9]+:00, 7 calls compressed$' '!nothing new' -- cat seen
  if command -v script >/dev/null; then
    (sleep 4 && : >enough) &
    for _ in 1 2 3 4 5; do ! timeout 60 script -qec "$crimp status skewed" /dev/null >seen || break; done
    expect 0 'crimp ended: 0:02' -- cat seen
  fi
  : >enough && wait
  # Control characters of eight bits too, as characters and as bytes that are no UTF-8; other characters are shown.
  printf 'crimp ended: \xc2\x9b31m \x9b31m caf\xc3\xa9\n' >s && expect 0 '^crimp ended: \?31m \?31m café$' -- env LC_ALL=C.UTF-8 "$crimp" status s
  # What a job before has left is no answer about the one that is being started; what is no status stays.
  sanitized || status_of_a_new_job
  # On a terminal it goes on until the job has ended.
  command -v script >/dev/null || return
  echo 'crimp: 0:01' >t && (sleep 1 && echo 'crimp ended: 0:02' >u && mv u t) &
  expect 0 'crimp: 0:01' 'crimp ended: 0:02' -- timeout 20 script -qec "$crimp status t" /dev/null
  wait
}

# One meaning for every code, whatever the command.
exit_codes_part() {
  local command
  while read -r command; do
    # shellcheck disable=SC2086
    expect 0 '.' -- "$crimp" ${command#crimp } --help
    # shellcheck disable=SC2086
    [ "$command" = 'crimp run' ] || expect 2 '.' -- "$crimp" ${command#crimp } --no-such-option
    # shellcheck disable=SC2086
    expect 1 'could not be written' -- sh -c "'$crimp' ${command#crimp } --help >/dev/full"
  done < <("$crimp" --help | grep -oE '^  crimp [a-z]+( [a-z]+)?' | sed 's/^  //')
  expect 2 'did you mean' -- "$crimp" statu
  expect 2 . -- "$crimp"
  expect 2 'crimp bench codec' '!crimp run  ' '!no command' -- "$crimp" bench
  expect 0 'crimp bench step' '!crimp run  ' -- "$crimp" bench --help
  expect 0 'crimp bench step' '!crimp run  ' -- "$crimp" help bench
  expect 2 "no command 'bench code', did you mean" '!crimp run  ' -- "$crimp" bench code
  expect 0 'bench codec' -- "$crimp" help
  expect 0 '--codec' -- "$crimp" help bench codec
  expect 2 'no command' -- "$crimp" help nothing
  expect 0 'Usage' -- "$crimp" help run -- ./program
  expect 2 'behind' -- "$crimp" run --no-such-option
  for command in report trace plan 'plan --model of --profile' 'status'; do
    # shellcheck disable=SC2086
    expect 2 'cannot be read|no regular file' '!filebuf' -- "$crimp" $command .
  done
  expect 0 '^crimp [0-9]' -- "$crimp" --version
  expect 2 'legal is 0.25' -- "$crimp" bench codec --codec 3lc:s=9 --count 1
  expect 2 'none not in' -- "$crimp" bench select --data none
  expect 2 'legal|thc' -- "$crimp" bench rotation --codec 3lc
  expect 2 'two ranks' -- "$crimp" bench allreduce --max 8k
  expect 2 'two ranks' -- "$crimp" bench call
  expect 2 'radix' -- "$crimp" model --radix 1
  expect 2 'cannot be read' -- "$crimp" plan nowhere
  ldconfig -p | grep -F 'libcuda.so.1 ' >/dev/null || expect 77 'no NVIDIA driver' -- "$crimp" bench call --device cuda
  expect 127 . -- "$crimp" check -- ./no-such-program
  expect 127 'could not be started' -- env MPIRUN=./no-such-launcher "$crimp" run -- ./program
  # crimp run becomes the launcher: its codes and the signals that it gets are its own.
  printf '#!/bin/sh\ncase "$1" in --version) echo "mpirun (Open MPI) 4";; *) exec sh -c "$CODE";; esac\n' >launcher && chmod +x launcher
  for code in 0 1 3 77 127 255; do expect $code -- env MPIRUN=./launcher CODE="exit $code" "$crimp" run --library "$library" -- ./program; done
  expect 143 -- env MPIRUN=./launcher CODE='kill -TERM $$' "$crimp" run --library "$library" -- ./program
  MPIRUN=./launcher CODE='trap "exit 9" TERM; echo up >up; sleep 20 & wait' "$crimp" run --library "$library" --status=s -- ./program &
  for _ in 1 2 3 4 5 6 7 8 9 10; do [ -e up ] && break; sleep 0.5; done
  kill -TERM $! && wait $!
  [ $? = 9 ] || { echo "a signal does not reach the launcher"; failed=1; }
}

info_part() {
  expect 0 '^crimp +[0-9]' '^build ' '^MPI +built with .*, running with ' '^GPU +(plugin|no plugin)' '^SIMD +compiled: .*; chosen here: ' -- "$crimp" info
  local patterns=()
  for name in $(legal_codecs); do patterns+=("^$name: "); done
  [ ${#patterns[@]} -ge 4 ] || { echo "the error for an unknown codec lists no codecs"; failed=1; }
  expect 0 "${patterns[@]}" 'parameter  s=1, legal: 0.25 <= s < 2' -- "$crimp" info --codecs
  expect 0 '^CRIMP_CODEC=auto ' '^CRIMP_MIN_COUNT=' 'legal: ' -- "$crimp" info --env
  # shellcheck disable=SC2016  # Markdown
  expect 0 '^\| `CRIMP_CODEC` \| `auto` \|' -- "$crimp" info --env --markdown
  expect 0 '^safe  ' 'CRIMP_CODEC=fp16' 'accuracy: ' '^aggressive ' -- "$crimp" info --profiles
  expect 2 'env' -- "$crimp" info --markdown
  expect 2 "no command 'bench codecs', did you mean 'bench codec'" -- "$crimp" bench codecs
  expect 2 'crimp run' -- "$crimp"
  expect 0 'crimp bench allreduce' -- "$crimp" --help
}

bench_codec_part() {
  local keys=() first=(memcpy_GBps encode_GBps decode_add_GBps decode_add_one_GBps decode_one_GBps encode_vs_memcpy decode_add_vs_memcpy bits_per_value
    relative_error simd)
  expect 0 '3lc:s=1,zero_run=1' -- "$crimp" bench codec --count 65536 --repeat 3 --json one.json
  for key in "${first[@]}"; do keys+=("results.0.$key"); done
  json one.json "${keys[@]}"
  "$crimp" bench codec --all --count 40961 --tensor 40961 --ranks 3 --threads 2 --data laplace --repeat 1 --json >all.json || failed=1
  keys=()
  for name in $(legal_codecs); do keys+=("results.${#keys[@]}.encode_GBps"); done
  json all.json "${keys[@]}"
  expect 0 '^ +fp32 .* 32.0 +1.00 +0$' '^ +fp16 .* 16.0 +2.00 ' '3lc:s=1.5' -- \
    "$crimp" bench codec --codec fp32 --codec fp16 --codec 3lc:s=1.5 --count 64k --repeat 1 --data sparse
  expect 2 'legal: fp32' -- "$crimp" bench codec --codec 3lx --count 1
  expect 0 'decode a sum' 'g=17' -- "$crimp" bench rotation --codec thc:g=17 --count 20k --repeat 1
  expect 2 'thc is' -- "$crimp" bench rotation --codec fp16
  expect 2 'count' -- "$crimp" bench codec --count 0
  expect 0 ' 1024 ' ' 65536 ' -- "$crimp" bench codec --count 1k --count 64k --repeat 1
  expect 2 'is no device; legal: host, cuda, cuda:N' -- "$crimp" bench codec --device gpu
  expect 2 'CRIMP_CUDA_PLUGIN is off' -- env CRIMP_CUDA_PLUGIN=off "$crimp" bench codec --device cuda
  ldconfig -p | grep -F 'libcuda.so.1 ' >/dev/null || expect 77 'device cuda: there is no NVIDIA driver here' -- "$crimp" bench codec --device cuda
}

bench_allreduce_part() {
  local common=(--iters 4 --factor 8 --min 8k) launch=("$crimp" run "${mpi[@]}" --)
  ! sanitized || launch=("$mpirun" "${mpi[@]}")
  expect 0 ' 8192 .* pass .* 0$' ' 65536 .* 0$' ' 524288 .* 0$' '!(-nan|inf)' -- \
    "${launch[@]}" "$crimp" bench allreduce --codec 3lc --max 512k "${common[@]}" --json three.json
  json three.json sizes.2.speedup sizes.2.plain_busbw_GBps sizes.2.crimp_algbw_GBps sizes.2.relative_error_of_mean
  json three.json sizes.0.wrong_ranks=0 sizes.1.wrong_ranks=0 sizes.2.wrong_ranks=0 sizes.2.compressed=ON
  # Linked, not preloaded; named; every algorithm of Open MPI.
  expect 0 ' 1048576 .* 4.00 .* 0$' -- \
    "$mpirun" "${mpi[@]}" "$crimp" bench allreduce --codec fp16 --dtype double --named --plain-algorithms --min 1M --max 1M --iters 3 --json fp16.json
  json fp16.json sizes.0.wrong_ranks=0 sizes.0.plain_us
  [[ $("$crimp" info) != *Open\ MPI* ]] || json fp16.json sizes.0.plain_algorithms_us.ring sizes.0.plain_best
  expect 2 'codec' 'legal: fp32' -- "$mpirun" "${mpi[@]}" "$crimp" bench allreduce --codec 3lx
  expect 2 'two ranks' -- "$crimp" bench allreduce --max 8k
  expect 0 '70 tensors, 32768 elements' 'besides encoding, wire and decoding' -- "${launch[@]}" "$crimp" bench call --segments 70 --calls 20
  expect 2 'two ranks' -- "$crimp" bench call
  expect 2 'is no device; legal: host, cuda, cuda:N' -- "$crimp" bench call --device gpu
  expect 2 'CRIMP_CUDA_PLUGIN is off' -- env CRIMP_CUDA_PLUGIN=off "$crimp" bench call --device cuda
}

# Three tensors of 1, 2 and 3 MB, ready after 1, 2 and 3 ms; a call takes 1 ms and 1 ns a byte. All in one: 3 + 7. Each alone: from 1 to 3, to 6, to 10.
# The first two together: from 2 to 6, to 10. The last two: from 1 to 3, and from there, 3, to 9.
plan_part() {
  local trace='{"tensors": ["a", "b", "c"], "stalls": false, "step_s": 0.0125, "steps": 9,
    "units": [{"tensors": 1, "bytes": 1000000, "ready_s": 0.001}, {"tensors": 1, "bytes": 2000000, "ready_s": 0.002}, {"tensors": 1, "bytes": 3000000, "ready_s": 0.003}],
    "calls": [[{"bytes": 0, "s": 0.001}, {"bytes": 1e6, "s": 0.002}]]}'
  local tried='[{"holds": true, "cuts": [1], "origin": "", "steps": 4, "step_ms": 11.25}]'
  echo '{"per_rank": [{"steps": [], "horovod": {"merge": {"search": {"trace": '"$trace"', "tried": '"$tried"'}}}}]}' >report.json
  expect 0 '^3 tensors in 3 .* 6.00 MB, of rank 0 under Horovod: 9 steps, of 12.50 ms' '^each alone +3 +10.00 +-$' '^all in one +1 +10.00 +-$' \
    '^buckets of 2 MB +2 +10.00 +-$' '^the optimum +2 +9.00 +11.25$' 'To run it: CRIMP_MERGE=cuts=1$' -- "$crimp" plan report.json
  expect 0 '"plan": "each alone"' '!buckets of 2 MB +2' -- "$crimp" plan report.json --json
  expect 0 'each alone' -- "$crimp" plan report.json --json out.json
  json out.json 0.caller=horovod 0.bytes=6000000 0.setting=CRIMP_MERGE=cuts=1 0.plans.0.groups=3 0.plans.0.cuts.1=2
  # A program whose calls keep it from computing has its 3 ms beside all of them.
  echo '{"per_rank": [{"steps": ['"${trace/false/true}"']}]}' >stalls.json
  expect 0 '^each alone +3 +12.00 +-$' '^the optimum +1 +10.00 +-$' '!CRIMP_MERGE=cuts' -- "$crimp" plan stalls.json
  # Calls of one size say nothing of others.
  echo '{"per_rank": [{"steps": [{"tensors": ["a"], "stalls": true, "step_s": 0.0125, "steps": 9, "units": [{"tensors": 1, "bytes": 1000000, "ready_s": 0.001}],
    "calls": [[{"bytes": 1e6, "s": 0.002}]]}]}]}' >one.json
  expect 2 'where CRIMP_ALGORITHM is auto and calls have several sizes, a trace where they have' -- "$crimp" plan one.json
  expect 2 'needs the file' -- "$crimp" plan
  expect 2 'one of them' -- "$crimp" plan report.json --model model.txt
  expect 2 "'nowhere.json' cannot be read" -- "$crimp" plan nowhere.json
  echo '{"per_rank": [{"steps": []}]}' >none.json
  expect 2 "'none.json' has no trace of steps" -- "$crimp" plan none.json
  echo '[1, 2' >damaged.json
  expect 2 "'damaged.json' is no report" -- "$crimp" plan damaged.json
  sed 's/"stalls": false, //' report.json >lacks.json
  expect 2 "'lacks.json' has a trace that lacks" -- "$crimp" plan lacks.json
  for part in '"steps":[@]' '"horovod":{"merge":{"search":{"trace":@}}}'; do
    deep_text '{"per_rank":[{'"$part"'}]}' >deep.json && expect 2 "'deep.json' is no report" -- "$crimp" plan deep.json
  done
  deep_text '{"otherData":{},"traceEvents":[{"pid":1,"ph":"X","args":@}]}' >deep.json && expect 2 "'deep.json' is no trace" -- "$crimp" plan deep.json
  # What a form does not take is refused, not ignored.
  local option
  for option in '--codecs fp16' '--compute 50' --gpu --one-machine '--quality 3' '--max-loss 1' '--program x' '--caller ddp' '--gradients f16' '--max 1M' '--seconds 1'; do
    # shellcheck disable=SC2086  # a name and a value
    expect 2 "crimp: ${option%% *} is " -- "$crimp" plan report.json $option
  done
  expect 2 '--compute is not taken with --measure' -- "$crimp" plan --measure p.json --compute 50
  expect 2 'leave out the report' -- "$crimp" plan --measure p.json report.json
  # Of very many calls the optimum is not searched for.
  echo '{"per_rank": [{"steps": [{"tensors": ['"$(seq -s, 16385 | sed 's/[0-9]\+/"&"/g')"'], "stalls": true, "step_s": 0.02, "steps": 9,
    "units": ['"$(seq -s, 16385 | sed 's/[0-9]\+/{"tensors":1,"bytes":4,"ready_s":0.001}/g')"'], "calls": [[{"bytes": 0, "s": 0.001}, {"bytes": 1e6, "s": 0.002}]]}]}]}' >many.json
  expect 0 '^all in one +1 ' 'The optimum was not looked for: among more than 16384' '!^the optimum' -- "$crimp" plan many.json
  expect 0 '!search_ms' -- "$crimp" plan many.json --json
  sanitized || expect 2 "'/dev/zero' cannot be read: it is a device" -- bash -c 'ulimit -v 4000000; "$0" plan /dev/zero' "$crimp"
  plan_of_trace
}

# A program that computes 10 ms, sums 1 MB, computes 1 ms, sums 2 MB, computes 1 ms, and sums 3 MB that MPI does; a call takes 1 ms and 1 ns a byte. Before its four
# steps and behind them it does something else.
plan_of_trace() {
  event() { printf ',\n{"pid":1,"tid":1,"ph":"X","cat":"%s","name":"%s","ts":%s,"dur":%s,"args":{%s}}' "$@"; }
  local about='"call":3,"communicator":"0-1 #0","dtype":"float32","codec":"fp16","algorithm":"allgather","why":"forced","tensors":"named","sent_bytes":2,"received_bytes":2'
  {
    printf '{"otherData":{"crimp":"9.9"},"traceEvents":[\n{"pid":2,"ph":"M","name":"process_name","args":{"name":"rank 1"}}'
    event 'passed to MPI' small 0 1000 '"elements":1'
    for at in 5000 26000 47000 68000; do
      event calls a $((at + 10000)) 2000 "\"bytes\":1000000,$about"
      event encode encode $((at + 10000)) 1000 '"call":3,"chunk":0'
      event calls b $((at + 13000)) 3000 "\"bytes\":2000000,$about"
      event 'passed to MPI' small $((at + 17000)) 4000 '"elements":750000'
      # What no gradient is: a largest value, and a count, of some steps.
      [ $at = 26000 ] || event 'passed to MPI' 'not a sum' $((at + 9000)) 500 '"elements":1'
      event 'passed to MPI' 'not a recognised floating-point type' $((at + 9500)) 400 '"elements":2'
    done
    event 'passed to MPI' small 100000 1000 '"elements":1'
    echo ']}'
  } >trace.json
  expect 0 '^3 tensors in 3 calls, 6.00 MB, of rank 0: 4 steps, of 21.00 ms' '^each alone +3 +21.00 +-$' '^all in one +1 +19.00 +-$' '^the optimum +1 +19.00 +-$' -- "$crimp" plan trace.json
  # In one step the second call went to MPI, where it has no name.
  sed 's/"cat":"calls","name":"b","ts":39000,\(.*\)"args":.*/"cat":"passed to MPI","name":"small","ts":39000,\1"args":{"elements":500000}}'"$(grep -q '"ts":39000.*},$' trace.json && echo ,)"'/' trace.json >mixed.json
  cmp -s trace.json mixed.json && expect 1 'mixed.json is another one' -- true
  expect 0 '^3 tensors in 3 calls, 6.00 MB, of rank 0: 4 steps, of 21.00 ms' '^the optimum +1 +19.00 +-$' -- "$crimp" plan mixed.json
  expect 0 '"tensors": 3' '"ranks": 2' '"caller": "program"' '"compute_ms": (12|11.99)' -- "$crimp" plan trace.json --link 100M --codecs fp16 --json
  expect 0 '^The step is one of a job of 2 ranks; all figures here are for 4\.$' -- "$crimp" plan trace.json --link 100M --codecs fp16 --ranks 4
  expect 0 '!^The step is one of' -- "$crimp" plan trace.json --link 100M --codecs fp16
  expect 0 'each alone' -- bash -c '"$0" plan <(cat report.json)' "$crimp"
  expect 0 '^3 tensors in 3 calls' -- bash -c '"$0" plan <(cat trace.json)' "$crimp"
  sed 's/"tensors":"named"/"tensors":"negotiated"/' trace.json >horovods.json
  expect 2 "'horovods.json' is of calls that Horovod makes" -- "$crimp" plan horovods.json
  grep -v '"ts":[5-9]' trace.json >short.json
  expect 2 "'short.json' has no steps: of the [0-9]+ sums" -- "$crimp" plan short.json
  head -c 700 trace.json >cut.json
  expect 2 "'cut.json' is no trace of Crimp, or not all of it" -- "$crimp" plan cut.json
}

# deep_text TEXT: with a value that is nested 300,000 deep in place of each @.
deep_text() {
  local deep
  deep=$(head -c 300000 /dev/zero | tr '\0' '[')$(head -c 300000 /dev/zero | tr '\0' ']')
  printf %s "${1//@/"$deep"}"
}

# Two ranks, one call each. Rank 1 comes 4 ms late: rank 0 waits 5 ms, rank 1 1 ms. Of rank 0's 10 ms of encoding 4 lie in what is under way.
trace_part() {
  event() { printf '{"pid":%s,"tid":1,"ph":"X","cat":"%s","name":"%s","ts":%s,"dur":%s,"args":{%s}},\n' "$@"; }
  local call='"call":3,"communicator":"0-1 #0","dtype":"float32","elements":1000,"bytes":4000,"codec":"fp16","algorithm":"allgather","why":"forced","tensors":"named","sent_bytes":2000,"received_bytes":2000'
  local about='{"pid":%s,"ph":"M","name":"crimp_rank","args":{"rank":%s,"host":"h%s","clock":{"offset_us":0,"uncertainty_us":%s,"drift_ppm":0},"dropped":{"work":%s,"calls":0}}},\n'
  {
    # shellcheck disable=SC2059  # a format
    printf '{"otherData":{"crimp":"9.9"},"traceEvents":[\n' && printf "$about" 1 0 0 12 0 && printf "$about" 2 1 1 30 7
    event 1 wait wait 1000 5000 '"call":3,"communicator":"0-1 #0","last":1,"lost_us":4000'
    event 2 wait wait 5000 1000 '"call":3,"communicator":"0-1 #0","last":1,"lost_us":0'
    event 1 calls 'w\tx' 6000 40000 "$call"
    event 2 calls 'w\tx' 10000 40000 "$call"
    event 1 encode encode 6000 10000 '"call":3,"chunk":0'
    event 1 'under way' 'under way' 12000 20000 '"call":3,"chunk":0'
    event 1 'under way' 'under way' 20000 20000 '"call":3,"chunk":1'
    event 1 wire wire 20000 6000 '"call":3,"chunk":0'
    event 1 'passed to MPI' 'not a sum' 60000 1000 '"elements":5'
    echo '{"pid":1,"ph":"C","name":"ratio","ts":1,"args":{"ratio":2}}]}'
  } >t.json
  expect 0 '^t.json: 2 ranks, 0.060 s .* clocks within 30 us, by Crimp 9.9$' '^7 spans are missing' '^0 +1 +5.00 +0.00 +0$' '^1 +1 +1.00 +4.00 +1$' \
    'waited longest for rank 1 .h1.: 4.00 of 4.00 ms' '^0 +1 +40.00 +10.00 +6.00 +0.00 +5.00 +28.00 +1.00 +2.0$' '^40 % of the encoding' '^w\?x +1 +3.00 +40.00 +0.00 +2.0$' \
    '!estimated' -- "$crimp" trace t.json
  expect 0 'estimated from when calls began, clocks within 30 us' '^0 +1 +4.00 +0.00 +0$' '^1 +1 +0.00 +4.00 +1$' -- sh -c 'grep -v "\"cat\":\"wait" t.json >e.json; "$0" trace e.json' "$crimp"
  expect 0 '^wire .ms. +3.00 +6.00 +.100 %$' '^encode .ms. +5.00 +5.00 +.0 %$' -- sh -c 'sed "s/\"ts\":20000,\"dur\":6000/\"ts\":20000,\"dur\":12000/" t.json >b.json; "$0" trace t.json b.json' "$crimp"
  # Means are no whole numbers: one of two ranks has passed a call.
  expect 0 '^passed calls +0.500 +0.500 ' -- "$crimp" trace t.json t.json
  expect 0 -- "$crimp" trace t.json --json out.json
  json out.json dropped=7 per_rank.0.calls=1 skew.measured=ON skew.per_rank.1.last=1 tensors.0.calls=2
  expect 2 'would be written over' -- "$crimp" trace --json t.json t.json
  expect 0 '^t.json: 2 ranks' -- "$crimp" trace t.json  # still is what it was
  expect 2 'needs the file' -- "$crimp" trace
  expect 2 "'nowhere.json' cannot be read" -- "$crimp" trace nowhere.json
  head -c 500 t.json >cut.json
  expect 2 "'cut.json' is no JSON, or not all of it" -- "$crimp" trace cut.json
  echo '{"traceEvents":[]}' >other.json
  expect 2 "'other.json' is no trace of Crimp" -- "$crimp" trace other.json
  echo '{"otherData":{"crimp":"9"},"traceEvents":[{"ph":"X","pid":1,"name":"n"}]}' >odd.json
  expect 2 "'odd.json' has an event that Crimp does not write: .*\"ph\":\"X\"" -- "$crimp" trace odd.json
  echo '{"otherData":{"crimp":"9"},"traceEvents":[]}' >empty.json
  expect 0 '0 ranks, 0.000 s' -- "$crimp" trace empty.json
  expect 0 'compressed calls +0' -- "$crimp" trace empty.json empty.json
  echo '[1, [2], {"otherData": {"crimp": 3}}]' >array.json
  expect 2 "'array.json' is no trace" -- "$crimp" trace array.json
  expect 2 "'/dev/null' is no JSON" -- "$crimp" trace /dev/null
  # Nested without end, which takes the stack of whoever prints or copies it.
  for event in '"args":@' '"ph":"b","ts":1,"id2":{"local":"1"},"args":@'; do
    deep_text '{"otherData":{"crimp":"9"},"traceEvents":[{"pid":1,'"$event"'}]}' >deep.json
    expect 2 "'deep.json' is no JSON, or not all of it" -- "$crimp" trace deep.json
  done
  printf '{"otherData":{"crimp":"9"},"traceEvents":[{"pid":1,"ph":"\xc2\x9b31m"}]}' >odd.json && expect 2 'does not write: .*\?31m' -- "$crimp" trace odd.json
  printf '{"otherData":{"crimp":"\xc2\x9b31m"},"traceEvents":[]}' >odd.json && expect 0 'by Crimp \?31m$' -- "$crimp" trace odd.json
}

# What `crimp plan` says of a model on a cluster; figures are those of tests/unit/forecast_test.cpp's arithmetic.
plan_model_part() {
  echo 'w 1000000' >model.txt
  local slow=(--ranks 2 --link 8M --latency 0us --add 1e9 --model model.txt)
  # 4 MB through a link of 1 MB/s; a byte an element in place of it, and what encoding takes.
  expect 0 '^none +mpi +[a-z]+ +4000\.[0-9]+ .* 4\.00 +1\.00 ' '^8bit +allgather +[a-z]+ +10[0-9][0-9]\.[0-9]+ .* bandwidth +none seen' 'Computing is not known' \
    'Take 3lc: ' 'would not pay any more' '  crimp run -np 2 --codec 3lc -- ./your_program$' -- "$crimp" plan "${slow[@]}" --codecs 8bit,fp16,3lc --caller program
  expect 0 '"pays": true' '"line": ' '!^none' -- "$crimp" plan "${slow[@]}" --codecs 3lc --json
  # The line at the end is one that runs.
  local line
  line=$("$crimp" plan "${slow[@]}" --codecs 3lc:s=1.5,entropy=1,fp16 --program ./train | tail -n 1)
  [[ $line == *"crimp run -np 2 "* ]] || { echo "no line to run: $line"; failed=1; }
  expect 0 'CRIMP_CODEC=fp16 .*./train' -- env PATH="$(dirname "$crimp"):$PATH" bash -c "${line/crimp run/crimp run --dry-run}"
  # It does not pay: nothing to gain by an exchange that is hidden, or of which the codec takes longer.
  expect 0 'It will not pay here: .*took no time at all would gain 0\.' 'It would on links of less than' '^  mpirun -np 2 ./your_program$' -- \
    "$crimp" plan --model model.txt --ranks 2 --link 400G --latency 1us --compute 1000 --codecs 3lc
  expect 0 'It will not pay here' 'loses more than 0.5 points' -- "$crimp" plan "${slow[@]}" --codecs 3lc:s=1.9
  expect 0 '3lc:s=1.9 .*not measured' -- "$crimp" plan "${slow[@]}" --codecs 3lc:s=1.9
  expect 0 'No curve of a GPU has been measured' -- "$crimp" plan "${slow[@]}" --gpu --codecs 3lc
  # Of bounds it is not known at which rate of the link they turn.
  expect 0 'It will not pay here' '!No rate' -- "$crimp" plan --model model.txt --ranks 2 --link 400G --latency 1us --compute 1000 --codecs 3lc --gpu
  expect 0 "plain MPI's exchange" '!MPI.s a ' -- "$crimp" plan --model model.txt --ranks 2 --link 400G --latency 1s --codecs 3lc
  expect 0 'Take 3lc: an exchange of' -- "$crimp" plan "${slow[@]}" --codecs 3lc
  expect 0 ' 1 Gbit/s a node' -- "$crimp" plan --model model.txt --link 999.7M --codecs fp16
  for below in -1 -1M ' -1'; do expect 2 "'$below' is below 0" -- "$crimp" model --size "$below"; done
  for odd in 5-7 -x - 1-M -1-2; do expect 2 "'$odd' is no size" -- "$crimp" model --size="$odd"; done
  expect 2 "'99999999999999999999' is too large a number" -- "$crimp" model --size 99999999999999999999
  expect 0 '^fp16 +hierarchical' '4 ranks on 2 nodes' -- "$crimp" plan --model model.txt --ranks 4 --nodes 2 --codecs fp16
  expect 0 'left out: powersgd' '!No rate' -- "$crimp" plan "${slow[@]}" --codecs powersgd
  expect 2 "'nowhere.txt' cannot be read" -- "$crimp" plan --model nowhere.txt
  printf 'w 10\nw 20\n' >twice.txt
  expect 2 "'twice.txt' has line 2: the name 'w' twice" -- "$crimp" plan --model twice.txt
  printf 'PK\003\004' >checkpoint.pt
  expect 2 'python3 -m crimp.model checkpoint.pt' -- "$crimp" plan --model checkpoint.pt
  printf '\377\377\377\377\377\377\377\177{"a": 1}' >long.safetensors
  expect 2 'a header of 9223372036854775807 bytes' -- "$crimp" plan --model long.safetensors
  expect 2 "--link is 'fast'; legal is a rate" -- "$crimp" plan --model model.txt --link fast
  expect 2 "--latency is '-1us'" -- "$crimp" plan --model model.txt --latency=-1us
  expect 2 '--nodes 3 is larger than --ranks 2' -- "$crimp" plan --model model.txt --ranks 2 --nodes 3
  expect 2 'legal: fp32' -- "$crimp" plan --model model.txt --codecs 4lc
  expect 2 'names none' -- "$crimp" plan --model model.txt --codecs ,
  expect 2 'nan. is no number' -- "$crimp" plan --model model.txt --compute nan
  expect 2 'nan. is no number' -- "$crimp" plan --model model.txt --add nan
  expect 2 'legal is: exact, any' -- "$crimp" plan --model model.txt --quality foo
  expect 2 'ranks' -- "$crimp" plan --model model.txt --ranks 1
  expect 2 "'none.json' cannot be read" -- "$crimp" plan --model model.txt --profile none.json
  echo '{}' >none.json
  expect 2 "'none.json' has no profile" -- "$crimp" plan --model model.txt --profile none.json
  expect 2 'leave out --ranks' -- "$crimp" plan --model model.txt --profile none.json --link 1G
  expect 2 'leave out --ranks' -- "$crimp" plan --model model.txt --profile none.json --one-machine
  local none='[{"bytes":0,"s":0},{"bytes":1,"s":0}]'
  echo '{"crimp_profile":1,"ranks":2,"nodes":1,"network":{"allgather":'"$none"',"alltoall":'"$none"',"step":[],"plain":'"$none"'},"codecs":{}}' >none.json
  expect 2 "'none.json' has calls that take no time" -- "$crimp" plan --model model.txt --profile none.json
  expect 1 'cannot be written' -- "$crimp" plan "${slow[@]}" --codecs fp16 --json /nonexistent/x.json
}

# A profile of two ranks here, and what is predicted with it and measured; times decide nothing.
plan_measure_part() {
  local launch=("$crimp" run "${mpi[@]}" --)
  ! sanitized || launch=("$mpirun" "${mpi[@]}")
  printf 'a 300000\nb.bias 50000\nc 200x100\nd 1000\n' >model.txt
  expect 0 'profile.json: 2 ranks on 1 nodes, 2 codecs' -- "${launch[@]}" "$crimp" plan --measure profile.json --codecs 3lc,8bit --max 256k --seconds 0.05
  json profile.json crimp_profile=1 ranks=2 network.plain.2.s network.plain.2.bytes=65536.0
  expect 0 'as measured' '^3lc +two_shot ' '^8bit +auto ' '^none +mpi ' -- "$crimp" plan --model model.txt --profile profile.json --compute 5
  expect 0 '!^8bit' -- "$crimp" plan --model model.txt --profile profile.json --codecs 3lc
  expect 2 'was not measured with fp16' -- "$crimp" plan --model model.txt --profile profile.json --codecs fp16
  # A step's gradients are ready when a report says so.
  echo '{"per_rank": [{"steps": [{"tensors": ["a", "c"], "stalls": true, "step_s": 0.02, "steps": 9, "units": [{"tensors": 1, "bytes": 1200000, "ready_s": 0.004},
    {"tensors": 1, "bytes": 80000, "ready_s": 0.007}], "calls": [[{"bytes": 0, "s": 0.001}, {"bytes": 1e6, "s": 0.002}]]}]}]}' >report.json
  expect 0 '^2 tensors, 0.32 million' '^7.00 ms of computing' -- "$crimp" plan report.json --profile profile.json
  expect 0 '4 tensors in 2 calls, 2 ranks, 3lc.* by two_shot: a step takes [0-9.]+ ms' -- \
    "${launch[@]}" "$crimp" bench step --model model.txt --compute 5 --codec 3lc --algorithm two_shot --merge cuts=2 --steps 3 --warm-up 1 --json step.json
  json step.json elements=371000 groups=2 step_ms exchange_ms
  expect 2 'found by Horovod' -- "$crimp" bench step --model model.txt --merge auto
  expect 2 'needs --model' -- "$crimp" bench step
  expect 2 'two ranks' -- "$crimp" plan --measure alone.json
  expect 1 "'/nonexistent/p.json' could not be written" -- "${launch[@]}" "$crimp" plan --measure /nonexistent/p.json --codecs fp16 --max 128k --seconds 0.01
}

# Checkpoints by PyTorch, where there is one.
plan_torch_part() {
  local python=/usr/bin/python3
  "$python" -c 'import torch' 2>/dev/null || { echo "skipped: no PyTorch for $python"; exit 77; }
  export PYTHONPATH=$here/../../src/python PYTHONDONTWRITEBYTECODE=1
  "$python" - <<'PYTHON'
import torch, torch.nn as nn
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(10, 20))
torch.save(net.state_dict(), "plain.pt")
torch.save({"epoch": 3, "model": net.state_dict(), "optimizer": {"steps": 1}}, "nested.pt")
torch.save({"epoch": 3, "state_dict": net.state_dict(), "best_acc1": torch.tensor(0.7)}, "beside.pt")
torch.save({"a": net.state_dict(), "b": net.state_dict()}, "two.pt")
torch.save(net, "whole.pt")  # a pickle of classes
PYTHON
  local file
  for file in plain nested beside; do
    expect 0 '^0.weight 8x3x3x3 float32$' '^1.num_batches_tracked 1 int64$' -- "$python" -m crimp.model $file.pt
    "$python" -m crimp.model $file.pt >$file.txt
    # 224 + 16 + 220 elements; mean, variance and count of the norm have no gradient.
    expect 0 '3 tensors of the file have no gradient' '^6 tensors, 0.00 million elements' -- "$crimp" plan --model $file.txt --codecs fp16
  done
  expect 1 "name the state dict among these: a, b" -- "$python" -m crimp.model two.pt
  expect 0 '^2.bias 20 float32$' -- "$python" -m crimp.model two.pt b
  expect 1 "has no 'c'; it has: a, b" -- "$python" -m crimp.model two.pt c
  expect 1 'no checkpoint that can be read without running code' -- "$python" -m crimp.model whole.pt
  expect 1 'no checkpoint' -- "$python" -m crimp.model nowhere.pt
  expect 1 'usage' -- "$python" -m crimp.model
}

# Programs that use MPI where Crimp is not asked: by name past it, with an MPI of their own, without MPI_Init.
check_out_of_reach() {
  command -v cc >/dev/null || return
  local mpi
  mpi=$(ldd "$library" | sed -n 's/.*\(libmpi[a-z]*[.]so[.0-9]*\) => .*/\1/p')
  printf '#include <dlfcn.h>\nint main(void) {\n  void* mpi = dlopen("%s", RTLD_NOW);\n  const char* sum = "MPI_Allreduce";\n  ((int (*)(void*, void*))dlsym(mpi, "MPI_Init"))(0, 0);\n  ((int (*)(void))dlsym(mpi, "MPI_Finalize"))();\n  return !dlsym(mpi, sum);\n}\n' "$mpi" >by_name.c
  cc by_name.c -o by_name
  expect 1 "^bypassed: .*it opens $library[.0-9]* in libmpi" "by_name may look MPI_Allreduce up by name, .* give it $library" -- env LD_PRELOAD="$library" "$crimp" check -- ./by_name
  printf 'int PMPI_Init(void) { return 0; }\nint MPI_Init(void) { return PMPI_Init(); }\nint PMPI_Allreduce(void) { return 0; }\nint MPI_Allreduce(void) { return PMPI_Allreduce(); }\nint main(void) { return MPI_Init() || MPI_Allreduce(); }\n' >own.c
  cc own.c -o own
  expect 1 '^out of reach: ./own has an MPI of its own linked in' -- "$crimp" check --file ./own
  expect 1 '^out of reach: .*/own has an MPI of its own linked in' -- env LD_PRELOAD="$library" "$crimp" check -- ./own
  if cc -static own.c -o static 2>/dev/null; then
    expect 1 '^out of reach: ./static' -- "$crimp" check --file ./static
    # Such a program loads no preload, and what is run by its name is found on the PATH.
    expect 1 '^out of reach: ./static' '!not loaded' -- env LD_PRELOAD="$library" "$crimp" check -- ./static
    expect 1 '^out of reach: static' '!not loaded' -- env PATH="$PWD:$PATH" "$crimp" check -- static
  fi
  expect 0 'crimp run: ./own has an MPI of its own linked in' 'LD_PRELOAD=' -- "$crimp" run --dry-run -- ./own
  echo 'int crimp_allreduce(const void*, void*, unsigned long, int, void*, const void*, unsigned long); int main(void) { float x[4], y[4]; return crimp_allreduce(x, y, 4, 0, 0, 0, 0) == 0; }' >early.c
  cc early.c -o early "$library" "-Wl,-rpath,${library%/*}" -Wl,--allow-shlib-undefined
  expect 1 '^not started: ' 'sum has come before MPI_Init' -- "$crimp" check -- ./early
}

[ "$part" = run ] || [ "$part" = bench_allreduce ] || [ "$part" = plan_measure ] && ! command -v "$mpirun" >/dev/null && { echo "skipped: no mpirun"; exit 77; }
case $part in
check)
  expect 1 'not loaded' -- "$crimp" check -- true
  expect 1 'no calls: MPI_Allreduce would resolve to Crimp' -- env LD_PRELOAD="$library" "$crimp" check -- true
  expect 0 'ok: ' -- "$crimp" check -- "$crimp" --version
  expect 1 'bypassed: .*libmpi' -- env LD_PRELOAD=libmpi.so.40:"$library" "$crimp" check -- true
  # What it ran is listed: the program, linked; nothing, where a module calls nothing.
  expect 0 "^  $crimp -> $library(\.[0-9]+)?$" -- "$crimp" check -- "$crimp" --version
  expect 1 '!->' -- env LD_PRELOAD="$library" "$crimp" check -- true
  expect 1 "^  $crimp -> .*libmpi" '^bypassed: ' -- env LD_PRELOAD=libmpi.so.40 "$crimp" check -- "$crimp" --version
  expect 1 'ended with 3' -- "$crimp" check -- sh -c 'exit 3'
  expect 1 "^<\[1,2\]><a b><><\[\]>" -- "$crimp" check -- printf '<%s><%s><%s><%s>\n' '[1,2]' 'a b' '' '[]'
  # Nothing that a file names is run: here the linker that it asks for.
  printf '#!/bin/sh\ntouch %s/ran\n' "$PWD" >linker && chmod +x linker
  echo 'int main() { return 0; }' | cc -x c - -o strange "-Wl,--dynamic-linker=$PWD/linker"
  expect 1 'no calls: ' -- "$crimp" check --file ./strange
  [ ! -e ran ] || { echo "check --file ran what the file names"; failed=1; }
  # Programs that end without exit handlers have said so before.
  # shellcheck disable=SC2016  # for the inner shell
  expect 2 "runs no program; leave out 'true'" -- "$crimp" check --file ./strange -- true
  expect 1 'no calls: ' 'ended by signal 9' -- env LD_PRELOAD="$library" "$crimp" check -- sh -c 'kill -9 $$'
  expect 2 'no program' -- "$crimp" check
  expect 127 'No such file' -- "$crimp" check -- ./no-such-program
  check_out_of_reach
  ;;
run) run_part ;;
info) info_part ;;
plan) plan_part ;;
trace) trace_part ;;
completion) completion_part ;;
man) man_part ;;
status) status_part ;;
exit_codes) exit_codes_part ;;
plan_model) plan_model_part ;;
plan_measure) plan_measure_part ;;
plan_torch) plan_torch_part ;;
bench_codec) bench_codec_part ;;
bench_allreduce) bench_allreduce_part ;;
*) echo "command.sh: there is no part '$part'" && exit 2 ;;
esac
exit $failed
