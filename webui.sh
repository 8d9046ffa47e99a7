#!/usr/bin/env bash
# Sets up on first use, then starts Inline Core. All logic is in inline_core/launch/bootstrap.py.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
  [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
  found=${found:-$candidate}
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    chosen=$candidate
    break
  fi
done
if [ -z "${found:-}" ]; then
  echo "No Python was found. Install Python 3.11 or newer, for example: sudo apt install python3 python3-venv" >&2
  exit 3
fi
exec "${chosen:-$found}" "$here/inline_core/launch/bootstrap.py" "$@"
