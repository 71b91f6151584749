#!/usr/bin/env bash
# check_sdist.sh ROOT: a source archive of the Python package has all of its sources. A module of a few lines stands for PyTorch. Exit 77: no setuptools here.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/python3 -c 'import setuptools' 2>/dev/null || { echo "skipped: no setuptools"; exit 77; }
mkdir -p "$work/modules/torch/utils" "$work/crimp/include/crimp"
touch "$work/crimp/libcrimp.so" "$work/crimp/include/crimp/crimp.h"
echo '__version__ = "2.0"' >"$work/modules/torch/__init__.py"
touch "$work/modules/torch/utils/__init__.py"
cat >"$work/modules/torch/utils/cpp_extension.py" <<'PYTHON'
from setuptools import Extension as CppExtension
from setuptools.command.build_ext import build_ext as BuildExtension
PYTHON
cp -r "$1/src/python" "$work/package"
cd "$work/package"
find . -type f ! -name '*.pyc' | sort >"$work/sources"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$work/modules CRIMP_ROOT=$work/crimp MPICXX=echo /usr/bin/python3 setup.py -q sdist -d "$work/archive" 2>"$work/said" || { cat "$work/said"; exit 1; }
tar -tf "$work"/archive/*.tar.gz | sed 's|^[^/]*/|./|' | sort >"$work/packed"
missing=$(comm -23 "$work/sources" "$work/packed")
[ -z "$missing" ] || { echo "not in the archive:"; echo "$missing"; exit 1; }
