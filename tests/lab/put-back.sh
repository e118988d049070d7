#!/bin/bash
# Runs in the lab after every test: leaves the host as it was at boot, so that tests do not lean on each other.
# Arguments: ADDRESS=DRIVER of every function. Quick when nothing is out of place; the service is started anew, with
# an empty store, only when it holds something.
set -u
pci=/sys/bus/pci/devices

# What the store would bring back at the next start: allocations, bindings, vGPUs, cut cards.
promised_by_store() {
    python3 - <<'END'
import sqlite3
store = sqlite3.connect("file:/var/lib/vgpumgr/vgpumgr.db?mode=ro", uri=True)
for table in ("claims", "bindings", "vgpus", "card_setups", "quarantine"):
    (rows,) = store.execute(f"SELECT count(*) FROM {table}").fetchone()
    if rows:
        print(f"{rows} rows in {table}")
END
}

held_by_service() {
    systemctl is-active -q vgpumgr.service || echo "the service is down"
    promised_by_store
    for pair in "$@"; do
        [ "$(cat "$pci/${pair%%=*}/driver_override")" = "(null)" ] || echo "${pair%%=*} has an override"
    done
}

forget_all() {
    systemctl stop vgpumgr.service vgpumgr.socket
    rm -rf /var/lib/vgpumgr/*
}

serve_again() {
    systemctl reset-failed vgpumgr.service vgpumgr.socket 2>/dev/null
    systemctl start vgpumgr.socket vgpumgr.service
}

to_its_driver() {
    address=$1 wanted=$2
    [ -e "$pci/$address" ] || echo 1 >/sys/bus/pci/rescan
    driver=$(readlink "$pci/$address/driver")
    [ "$(cat "$pci/$address/driver_override")" = "(null)" ] || echo >"$pci/$address/driver_override"
    [ "${driver##*/}" != "$wanted" ] || return 0
    [ -z "$driver" ] || echo "$address" >"$pci/$address/driver/unbind"
    echo "$address" >/sys/bus/pci/drivers_probe
}

no_vgpus() {
    for mdev in /sys/bus/mdev/devices/*; do
        [ ! -e "$mdev" ] || echo 1 >"$mdev/remove"
    done
    for type in $pci/*/nvidia/current_vgpu_type; do
        [ ! -e "$type" ] || [ "$(cat "$type")" = 0 ] || echo 0 >"$type"
    done
}

no_vfs() {
    for count in $pci/*/sriov_numvfs; do
        [ "$(cat "$count")" = 0 ] || (echo 0 >"$count") 2>/dev/null ||
            /usr/lib/nvidia/sriov-manage -d "$(basename "$(dirname "$count")")"
    done
}

for vm in $(virsh list --name --all); do
    virsh destroy "$vm"
    virsh undefine "$vm"
done >/dev/null 2>&1
held=$(held_by_service "$@" 2>&1)
[ -z "$held" ] || { echo "starting the service anew: $held"; forget_all; }
no_vgpus
modprobe -qr mbochs mdpy mtty
for pair in "$@"; do
    to_its_driver "${pair%%=*}" "${pair#*=}"
done
no_vfs
[ -z "$held" ] || serve_again
