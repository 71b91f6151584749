#!/usr/bin/env bash
# install.sh SOURCES BUILD VENV [VERSION]: pip install of src/python without a network, in a new virtual environment, with Debian's PyTorch, or with a wheel of
# that version from the package index, and the Crimp of a build folder. What is installed already stays while its sources are the same. Exit 77: no PyTorch here.
set -euo pipefail
sources=$1 build=$2 venv=$3 version=${4-} python=/usr/bin/python3
skip() { echo "skipped: $1"; exit 77; }
[ -n "$version" ] || $python -c 'import torch; assert torch.distributed.is_available()' 2>/dev/null || skip "no PyTorch with torch.distributed for $python (Debian: python3-torch)"
[ -n "$version" ] || $python -c 'import torch.utils.cpp_extension, os; assert os.path.exists(torch.utils.cpp_extension.include_paths()[0] + "/ATen/ATen.h")' 2>/dev/null ||
  skip "PyTorch's headers are missing (Debian: libtorch-dev)"
$python -c 'import setuptools, wheel, venv, ensurepip' 2>/dev/null || skip "setuptools, wheel or venv are missing (Debian: python3-setuptools python3-wheel python3-venv)"
command -v mpicxx >/dev/null || skip "no mpicxx here"

state=$(cd "$sources" && { cat src/python/*.* src/python/c10d/* src/python/crimp/*.py include/crimp/crimp.h; echo "$build $version"; } | sha256sum)
[ "$(cat "$venv/state" 2>/dev/null)" != "$state" ] || { echo "installed already"; exit 0; }
if [ -z "$version" ]; then
  rm -rf "$venv"
  $python -m venv --system-site-packages "$venv"
elif ! "$venv/bin/python" -c "import torch; assert torch.__version__.split('+')[0] == '$version'" 2>/dev/null; then
  rm -rf "$venv"
  $python -m venv "$venv"
  "$venv/bin/python" -m pip install "torch==$version" numpy setuptools wheel ninja mpi4py || skip "no wheel of PyTorch $version can be had"
fi
rm -rf "$venv/sources"
mkdir "$venv/sources"
cp -r "$sources/src/python/." "$venv/sources"  # pip leaves files where it builds
CRIMP_ROOT=$build "$venv/bin/python" -m pip install --no-index --no-build-isolation --no-deps "$venv/sources"
cd "$venv"  # not where the sources are found by themselves
"$venv/bin/python" -c 'import crimp, crimp.torch, torch; print("crimp", crimp.__version__, "with PyTorch", torch.__version__)'
echo "$state" >"$venv/state"
