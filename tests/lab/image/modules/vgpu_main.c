// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for NVIDIA's vGPU host driver, written from its documented sysfs interface. It binds display
 * devices of vendor 10de under the driver name "nvidia" and offers vGPUs on those that it has types for.
 */
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>
#include "vgpu.h"

static LIST_HEAD(cards);
static DEFINE_MUTEX(cards_lock);

static struct vgpu_card *new_card(struct pci_dev *physfn, const struct vgpu_board *board)
{
	struct vgpu_card *card = kzalloc(sizeof(*card), GFP_KERNEL);

	if (!card)
		return NULL;
	kref_init(&card->users);
	mutex_init(&card->lock);
	card->physfn = pci_dev_get(physfn);
	card->board = board;
	list_add(&card->node, &cards);
	return card;
}

static struct vgpu_card *card_of(struct pci_dev *pdev, const struct vgpu_board *board)
{
	struct pci_dev *physfn = pci_physfn(pdev);
	struct vgpu_card *card;

	mutex_lock(&cards_lock);
	list_for_each_entry(card, &cards, node) {
		if (card->physfn == physfn) {
			kref_get(&card->users);
			goto out;
		}
	}
	card = new_card(physfn, board);
out:
	mutex_unlock(&cards_lock);
	return card;
}

static void free_card(struct kref *kref)
{
	struct vgpu_card *card = container_of(kref, struct vgpu_card, users);

	list_del(&card->node);
	pci_dev_put(card->physfn);
	kfree(card);
}

static void put_card(struct vgpu_card *card)
{
	mutex_lock(&cards_lock);
	kref_put(&card->users, free_card);
	mutex_unlock(&cards_lock);
}

static struct vgpu_seat *new_seat(struct pci_dev *pdev, bool typed_vf)
{
	if (typed_vf)
		return vfio_alloc_device(vgpu_seat, core.vdev, &pdev->dev, &vgpu_vf_ops);
	return kzalloc(sizeof(struct vgpu_seat), GFP_KERNEL) ?: ERR_PTR(-ENOMEM);
}

static void free_seat(struct vgpu_seat *seat, bool typed_vf)
{
	struct vgpu_card *card = seat->card;

	if (seat->claimed)
		iommu_device_release_dma_owner(&seat->pdev->dev);
	if (typed_vf)
		vfio_put_device(&seat->core.vdev);
	else
		kfree(seat);
	if (card)
		put_card(card);
}

static int offer(struct vgpu_seat *seat, bool typed_vf)
{
	if (typed_vf)
		return vgpu_vf_offer(seat);
	if (seat->pdev->is_virtfn || !pci_sriov_get_totalvfs(seat->pdev))
		return vgpu_mdev_offer(seat);
	pci_set_master(seat->pdev);
	return 0;
}

/*
 * The driver as a whole manages DMA itself, since its typed VFs are for guests. What the host keeps (a card, a
 * parent of mediated devices) is therefore claimed by hand, so that VFIO finds its group taken.
 */
static void claim_for_host(struct vgpu_seat *seat)
{
	seat->claimed = !iommu_device_claim_dma_owner(&seat->pdev->dev, &cards);
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	const struct vgpu_board *board = vgpu_board_of(pci_physfn(pdev)->device);
	bool typed_vf = board && board->vendor_vfio && pdev->is_virtfn;
	struct vgpu_seat *seat = new_seat(pdev, typed_vf);
	int ret = 0;

	if (IS_ERR(seat))
		return PTR_ERR(seat);
	seat->pdev = pdev;
	dev_set_drvdata(&pdev->dev, seat);
	if (!typed_vf)
		claim_for_host(seat);
	if (!board)
		return 0;
	seat->card = card_of(pdev, board);
	ret = seat->card ? offer(seat, typed_vf) : -ENOMEM;
	if (ret)
		free_seat(seat, typed_vf);
	return ret;
}

static void remove(struct pci_dev *pdev)
{
	struct vgpu_seat *seat = dev_get_drvdata(&pdev->dev);
	bool typed_vf = seat->is_typed_vf;

	if (pdev->is_physfn)
		pci_disable_sriov(pdev);
	if (seat->is_parent)
		vgpu_mdev_withdraw(seat);
	if (typed_vf)
		vgpu_vf_withdraw(seat);
	free_seat(seat, typed_vf);
}

/* A guarded board takes its VFs only from the vendor's tool, which opens the driver's "vf_gate" first. */
static bool vf_gate;
module_param(vf_gate, bool, 0600);
MODULE_PARM_DESC(vf_gate, "let guarded boards change their number of VFs");

static int configure(struct pci_dev *pdev, int count)
{
	const struct vgpu_board *board = vgpu_board_of(pdev->device);

	if (board && board->guarded && !vf_gate)
		return -EPERM;
	return pci_sriov_configure_simple(pdev, count);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID),
	  .class = PCI_BASE_CLASS_DISPLAY << 16, .class_mask = 0xff0000 },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver nvidia_driver = {
	.name = "nvidia",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.sriov_configure = configure,
	.driver_managed_dma = true,
};

static int __init nvidia_init(void)
{
	int ret = vgpu_mdev_start();

	if (ret)
		return ret;
	ret = pci_register_driver(&nvidia_driver);
	if (ret)
		vgpu_mdev_stop();
	return ret;
}

static void __exit nvidia_exit(void)
{
	pci_unregister_driver(&nvidia_driver);
	vgpu_mdev_stop();
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION("595.0-lab");
MODULE_DESCRIPTION("Stand-in for a vendor's vGPU host driver");
