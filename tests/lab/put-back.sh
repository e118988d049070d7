#!/bin/bash
# Runs in the lab after every test: leaves the host as it was at boot, so that tests do not lean on each other.
# Arguments: ADDRESS=DRIVER of every function. Quick when nothing is out of place.
set -u
pci=/sys/bus/pci/devices
list() { vgpumgr alloc list -o json 2>/dev/null; }

out_of_place() {
    for pair in "$@"; do
        device=$pci/${pair%%=*}
        driver=$(readlink "$device/driver" 2>/dev/null)
        [ "${driver##*/}" = "${pair#*=}" ] && [ "$(cat "$device/driver_override")" = "(null)" ] || echo "$pair"
    done
    for type in $pci/*/nvidia/current_vgpu_type; do
        [ ! -e "$type" ] || [ "$(cat "$type")" = 0 ] || echo "$type"
    done
    for count in $pci/*/sriov_numvfs; do
        [ "$(cat "$count")" = 0 ] || echo "$count"
    done
    ls /sys/bus/mdev/devices 2>/dev/null
    [ ! -e /var/lib/vgpumgr/vgpumgr.db ] ||
        list | grep -E '"state": "(requested|reserved|preparing|ready|attached|releasing)"'
    systemctl is-active -q vgpumgr.service || echo service
}

for vm in $(virsh list --name --all); do
    virsh destroy "$vm"
    virsh undefine "$vm"
done >/dev/null 2>&1
for pair in "$@"; do
    [ -e "$pci/${pair%%=*}" ] || echo 1 >/sys/bus/pci/rescan
done
[ -n "$(out_of_place "$@")" ] || exit 0

systemctl stop vgpumgr.service vgpumgr.socket
rm -rf /var/lib/vgpumgr/*
for mdev in /sys/bus/mdev/devices/*; do
    [ ! -e "$mdev" ] || echo 1 >"$mdev/remove"
done
for type in $pci/*/nvidia/current_vgpu_type; do
    [ ! -e "$type" ] || echo 0 >"$type"
done
for pair in "$@"; do
    address=${pair%%=*}
    driver=$(readlink "$pci/$address/driver" 2>/dev/null)
    echo >"$pci/$address/driver_override"
    [ "${driver##*/}" != "${pair#*=}" ] || continue
    [ -z "$driver" ] || echo "$address" >"$pci/$address/driver/unbind"
    echo "$address" >/sys/bus/pci/drivers_probe
done
for count in $pci/*/sriov_numvfs; do
    [ "$(cat "$count")" = 0 ] || (echo 0 >"$count") 2>/dev/null ||
        /usr/lib/nvidia/sriov-manage -d "$(basename "$(dirname "$count")")"
done
systemctl reset-failed vgpumgr.service vgpumgr.socket 2>/dev/null
systemctl start vgpumgr.socket vgpumgr.service
