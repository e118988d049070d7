#!/bin/sh
# Prepares a checkout: Debian packages, then a virtual environment in .venv. Run by make; safe to run again,
# and quick when everything is there. Only Debian's own python3 is used: a python from elsewhere would not
# match the libvirt development files that libvirt-python is built against.
set -eu
cd "$(dirname "$0")/.."

PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export PATH DEBIAN_FRONTEND=noninteractive
PYTHON=/usr/bin/python3
VENV=.venv

# To build libvirt-python; to run; what the tests ask of systemd (its judgement of the units) and of a real libvirt
# (schemas, virsh, QEMU's driver).
PACKAGES="ca-certificates gcc libc6-dev pkg-config libvirt-dev python3 python3-dev python3-venv
    libvirt0 libudev1 kmod pci.ids udev systemd
    libvirt-clients libvirt-daemon libvirt-daemon-driver-qemu qemu-system-x86 ovmf swtpm-tools"

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

missing_packages() {
    for package in $PACKAGES; do
        status=$(dpkg-query -W -f='${db:Status-Status} ' "$package" 2>/dev/null || true)
        case " $status" in
            *" installed "*) ;;
            *) printf '%s ' "$package" ;;
        esac
    done
}

install_packages() {
    command -v dpkg-query >/dev/null || fail "this set-up is for Debian 12 or 13; elsewhere install the" \
        "equivalents of: $(echo $PACKAGES)"
    missing=$(missing_packages)
    [ -z "$missing" ] && return
    [ "$(id -u)" = 0 ] || fail "packages are missing; run: sudo apt-get install --no-install-recommends $missing"
    say "installing $missing"
    apt-get -q -o DPkg::Lock::Timeout=300 update
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing
}

check_python() {
    [ -x "$PYTHON" ] || fail "$PYTHON is missing; run: sudo apt-get install python3"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed, $PYTHON is $("$PYTHON" -V); use Debian 12 or later"
}

# The stamp lies inside the environment, so that it goes when the environment goes, and names everything the
# environment was made from: a changed pyproject.toml, Python, libvirt or place makes a new one.
stamp_wanted() {
    {
        cat pyproject.toml .ci/setup.sh
        "$PYTHON" -V
        pkg-config --modversion libvirt
        pwd -P
    } | sha256sum | cut -c1-16
}

make_environment() {
    wanted=$(stamp_wanted)
    if [ "$(cat $VENV/.stamp 2>/dev/null)" = "$wanted" ] && $VENV/bin/python -c 'import vgpumgr' 2>/dev/null; then
        return
    fi
    say "making the virtual environment $VENV"
    rm -rf $VENV
    "$PYTHON" -m venv $VENV
    pip="$VENV/bin/python -m pip --disable-pip-version-check --no-input install --quiet"
    $pip --use-pep517 --no-cache-dir --no-binary libvirt-python "libvirt-python==$(pkg-config --modversion libvirt)"
    $pip --editable '.[dev]'
    $VENV/bin/python -c 'import libvirt' || fail "libvirt-python does not load; remove $VENV and run again"
    echo "$wanted" >$VENV/.stamp
}

# pip does not compile an editable install, and Python may be told not to write what it compiles
# (PYTHONDONTWRITEBYTECODE): every start would compile everything again. Quick when nothing has changed.
compile_sources() {
    $VENV/bin/python -m compileall -q vgpumgr api
}

install_packages
check_python
make_environment
compile_sources
