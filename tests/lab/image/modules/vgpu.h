/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stand-in for NVIDIA's vGPU host driver: what its files share.
 *
 * A "card" is one budget of framebuffer for a physical function and all its virtual functions. A "seat" is one
 * PCI function that the driver is bound to. A "vGPU" takes framebuffer of the card while it lives.
 */
#ifndef LAB_VGPU_H
#define LAB_VGPU_H

#include <linux/device.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mdev.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/vfio.h>
#include <linux/vfio_pci_core.h>

#define MAX_TYPES 12

/* A row of the catalogue: one vGPU type as the vendor names it. */
struct vgpu_kind {
	const char *id;		/* "557" */
	const char *name;	/* "NVIDIA A40-1Q" */
	unsigned int fb_mb;
	unsigned int most;	/* instances on one card */
};

struct vgpu_board {
	unsigned short device;
	unsigned int fb_mb;
	bool guarded;		/* refuses a plain write to sriov_numvfs, as the vendor's driver does */
	bool vendor_vfio;	/* VFs are themselves the vGPUs; else they are parents of mediated devices */
	unsigned int kinds;
	const struct vgpu_kind *kind;
};

struct vgpu_card {
	struct kref users;
	struct list_head node;
	struct pci_dev *physfn;
	const struct vgpu_board *board;
	struct mutex lock;	/* guards used_mb, count and size_mb */
	unsigned int used_mb, count, size_mb;
};

struct vgpu_type {
	struct mdev_type mdev;
	const struct vgpu_kind *kind;
};

struct vgpu_seat {
	struct vfio_pci_core_device core;	/* of a VF in the vendor's VFIO scheme; must come first */
	struct pci_dev *pdev;
	struct vgpu_card *card;
	struct mdev_parent parent;
	struct vgpu_type types[MAX_TYPES];
	struct mdev_type *type_list[MAX_TYPES];
	const struct vgpu_kind *current_kind;	/* vendor's VFIO scheme; NULL: none */
	unsigned int mdevs;
	char params[256];
	bool is_parent, is_typed_vf, claimed;
};

extern const struct vgpu_board vgpu_boards[];
const struct vgpu_board *vgpu_board_of(unsigned short device);

/* How many more vGPUs of a kind the card takes. Takes the card's lock itself. */
unsigned int vgpu_room(struct vgpu_card *card, const struct vgpu_kind *kind);
/* 0, or -EIO when there is no room, as the vendor's driver answers. */
int vgpu_take(struct vgpu_card *card, const struct vgpu_kind *kind);
void vgpu_give(struct vgpu_card *card, const struct vgpu_kind *kind);

int vgpu_mdev_start(void);
void vgpu_mdev_stop(void);
int vgpu_mdev_offer(struct vgpu_seat *seat);
void vgpu_mdev_withdraw(struct vgpu_seat *seat);

extern const struct vfio_device_ops vgpu_vf_ops;
int vgpu_vf_offer(struct vgpu_seat *seat);
void vgpu_vf_withdraw(struct vgpu_seat *seat);

#endif
