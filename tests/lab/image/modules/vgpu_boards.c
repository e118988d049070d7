// SPDX-License-Identifier: GPL-2.0
/* Which boards the stand-in knows, and their vGPU types. Ids and sizes as the vendor publishes them. */
#include "vgpu.h"

static const struct vgpu_kind t4[] = {
	{ "230", "GRID T4-1Q", 1024, 16 },
	{ "231", "GRID T4-2Q", 2048, 8 },
	{ "232", "GRID T4-4Q", 4096, 4 },
	{ "233", "GRID T4-8Q", 8192, 2 },
	{ "234", "GRID T4-16Q", 16384, 1 },
};

static const struct vgpu_kind a40[] = {
	{ "557", "NVIDIA A40-1Q", 1024, 32 },
	{ "558", "NVIDIA A40-2Q", 2048, 24 },
	{ "560", "NVIDIA A40-4Q", 4096, 12 },
	{ "562", "NVIDIA A40-8Q", 8192, 6 },
	{ "563", "NVIDIA A40-12Q", 12288, 4 },
	{ "565", "NVIDIA A40-24Q", 24576, 2 },
	{ "566", "NVIDIA A40-48Q", 49152, 1 },
};

static const struct vgpu_kind l40s[] = {
	{ "1147", "NVIDIA L40S-1Q", 1024, 32 },
	{ "1148", "NVIDIA L40S-2Q", 2048, 24 },
	{ "1150", "NVIDIA L40S-4Q", 4096, 12 },
	{ "1152", "NVIDIA L40S-8Q", 8192, 6 },
	{ "1153", "NVIDIA L40S-12Q", 12288, 4 },
	{ "1155", "NVIDIA L40S-24Q", 24576, 2 },
	{ "1156", "NVIDIA L40S-48Q", 49152, 1 },
};

const struct vgpu_board vgpu_boards[] = {
	{ .device = 0x1eb8, .fb_mb = 16384, .kinds = ARRAY_SIZE(t4), .kind = t4 },
	{ .device = 0x2235, .fb_mb = 49152, .kinds = ARRAY_SIZE(a40), .kind = a40 },
	{ .device = 0x26b9, .fb_mb = 49152, .kinds = ARRAY_SIZE(l40s), .kind = l40s,
	  .guarded = true, .vendor_vfio = true },
	{ }
};

const struct vgpu_board *vgpu_board_of(unsigned short device)
{
	const struct vgpu_board *board;

	for (board = vgpu_boards; board->device; board++)
		if (board->device == device)
			return board;
	return NULL;
}

/* One size at a time on a card, and never more than its memory or the type's own limit. */
static unsigned int room_locked(struct vgpu_card *card, const struct vgpu_kind *kind)
{
	unsigned int by_memory = (card->board->fb_mb - card->used_mb) / kind->fb_mb;

	if (card->count && card->size_mb != kind->fb_mb)
		return 0;
	if (card->count >= kind->most)
		return 0;
	return min(by_memory, kind->most - card->count);
}

unsigned int vgpu_room(struct vgpu_card *card, const struct vgpu_kind *kind)
{
	unsigned int room;

	mutex_lock(&card->lock);
	room = room_locked(card, kind);
	mutex_unlock(&card->lock);
	return room;
}

int vgpu_take(struct vgpu_card *card, const struct vgpu_kind *kind)
{
	int ret = -EIO;

	mutex_lock(&card->lock);
	if (room_locked(card, kind)) {
		card->count++;
		card->used_mb += kind->fb_mb;
		card->size_mb = kind->fb_mb;
		ret = 0;
	}
	mutex_unlock(&card->lock);
	return ret;
}

void vgpu_give(struct vgpu_card *card, const struct vgpu_kind *kind)
{
	mutex_lock(&card->lock);
	card->count--;
	card->used_mb -= kind->fb_mb;
	mutex_unlock(&card->lock);
}
