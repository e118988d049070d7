// SPDX-License-Identifier: GPL-2.0
/* vGPUs as mediated devices: a display device with one memory BAR that keeps what a guest writes. */
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "vgpu.h"

#define BAR_SIZE (16u << 20)		/* really backed, whatever framebuffer the type is said to have */
#define BAR_OFFSET (1ull << 40)

struct vgpu_mdev {
	struct vfio_device vdev;
	struct vgpu_seat *seat;
	const struct vgpu_kind *kind;
	struct mutex lock;
	u8 config[256];
	void *bar;
	char params[256];
};

static struct vgpu_mdev *to_vgpu(struct vfio_device *vdev)
{
	return container_of(vdev, struct vgpu_mdev, vdev);
}

static void fill_config(struct vgpu_mdev *vgpu)
{
	struct pci_dev *pdev = vgpu->seat->card->physfn;
	__le16 *words = (__le16 *)vgpu->config;

	words[PCI_VENDOR_ID / 2] = cpu_to_le16(pdev->vendor);
	words[PCI_DEVICE_ID / 2] = cpu_to_le16(pdev->device);
	words[PCI_CLASS_DEVICE / 2] = cpu_to_le16(PCI_CLASS_DISPLAY_VGA);
	vgpu->config[PCI_REVISION_ID] = 0xa1;
	words[PCI_SUBSYSTEM_VENDOR_ID / 2] = cpu_to_le16(pdev->vendor);
	words[PCI_SUBSYSTEM_ID / 2] = cpu_to_le16(pdev->subsystem_device);
	vgpu->config[PCI_BASE_ADDRESS_0] = PCI_BASE_ADDRESS_MEM_PREFETCH;
}

static int mdev_dev_init(struct vfio_device *vdev)
{
	struct vgpu_mdev *vgpu = to_vgpu(vdev);
	struct mdev_device *mdev = to_mdev_device(vdev->dev);
	int ret;

	mutex_init(&vgpu->lock);
	vgpu->seat = dev_get_drvdata(mdev->dev.parent);
	vgpu->kind = container_of(mdev->type, struct vgpu_type, mdev)->kind;
	if (vgpu->seat->pdev->is_virtfn && vgpu->seat->mdevs)
		return -EIO;
	ret = vgpu_take(vgpu->seat->card, vgpu->kind);
	if (ret)
		return ret;
	vgpu->bar = vmalloc_user(BAR_SIZE);
	if (!vgpu->bar) {
		vgpu_give(vgpu->seat->card, vgpu->kind);
		return -ENOMEM;
	}
	vgpu->seat->mdevs++;
	fill_config(vgpu);
	return 0;
}

static void mdev_dev_release(struct vfio_device *vdev)
{
	struct vgpu_mdev *vgpu = to_vgpu(vdev);

	vgpu->seat->mdevs--;
	vgpu_give(vgpu->seat->card, vgpu->kind);
	vfree(vgpu->bar);
}

/* Where an access lands, or NULL when it is outside of both regions. */
static void *target(struct vgpu_mdev *vgpu, loff_t pos, size_t count)
{
	if (pos >= 0 && pos + count <= sizeof(vgpu->config))
		return vgpu->config + pos;
	if (pos >= BAR_OFFSET && pos + count <= BAR_OFFSET + BAR_SIZE)
		return vgpu->bar + (pos - BAR_OFFSET);
	return NULL;
}

static ssize_t mdev_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *pos)
{
	struct vgpu_mdev *vgpu = to_vgpu(vdev);
	void *from = target(vgpu, *pos, count);

	if (!from)
		return -EINVAL;
	if (copy_to_user(buf, from, count))
		return -EFAULT;
	*pos += count;
	return count;
}

/* The guest may set the command register and the BAR; all else in configuration space is read-only. */
static int write_config(struct vgpu_mdev *vgpu, const char __user *buf, size_t count, loff_t pos)
{
	__le32 bar;

	if (pos == PCI_COMMAND && count <= 2)
		return copy_from_user(vgpu->config + pos, buf, count) ? -EFAULT : 0;
	if (pos != PCI_BASE_ADDRESS_0 || count != sizeof(bar))
		return 0;
	if (copy_from_user(&bar, buf, sizeof(bar)))
		return -EFAULT;
	bar = cpu_to_le32((le32_to_cpu(bar) & ~(BAR_SIZE - 1)) | PCI_BASE_ADDRESS_MEM_PREFETCH);
	memcpy(vgpu->config + pos, &bar, sizeof(bar));
	return 0;
}

static ssize_t mdev_write(struct vfio_device *vdev, const char __user *buf, size_t count, loff_t *pos)
{
	struct vgpu_mdev *vgpu = to_vgpu(vdev);
	void *to = target(vgpu, *pos, count);
	int ret = 0;

	if (!to)
		return -EINVAL;
	mutex_lock(&vgpu->lock);
	if (*pos < sizeof(vgpu->config))
		ret = write_config(vgpu, buf, count, *pos);
	else if (copy_from_user(to, buf, count))
		ret = -EFAULT;
	mutex_unlock(&vgpu->lock);
	if (ret)
		return ret;
	*pos += count;
	return count;
}

static int mdev_mmap(struct vfio_device *vdev, struct vm_area_struct *vma)
{
	unsigned long size = vma->vm_end - vma->vm_start;

	if (vma->vm_pgoff != BAR_OFFSET >> PAGE_SHIFT || size > BAR_SIZE)
		return -EINVAL;
	return remap_vmalloc_range(vma, to_vgpu(vdev)->bar, 0);
}

static long get_info(void __user *arg)
{
	struct vfio_device_info info;
	size_t size = offsetofend(struct vfio_device_info, num_irqs);

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size)
		return -EINVAL;
	info.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
	info.num_regions = VFIO_PCI_NUM_REGIONS;
	info.num_irqs = VFIO_PCI_NUM_IRQS;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long get_region(void __user *arg)
{
	struct vfio_region_info info;
	size_t size = offsetofend(struct vfio_region_info, offset);
	u32 access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	info.flags = 0;
	info.cap_offset = 0;
	info.size = 0;
	info.offset = 0;
	if (info.index == VFIO_PCI_CONFIG_REGION_INDEX) {
		info.size = sizeof_field(struct vgpu_mdev, config);
		info.flags = access;
	} else if (info.index == VFIO_PCI_BAR0_REGION_INDEX) {
		info.size = BAR_SIZE;
		info.offset = BAR_OFFSET;
		info.flags = access | VFIO_REGION_INFO_FLAG_MMAP;
	}
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long get_irq(void __user *arg)
{
	struct vfio_irq_info info;
	size_t size = offsetofend(struct vfio_irq_info, count);

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	info.flags = 0;
	info.count = 0;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long mdev_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case VFIO_DEVICE_GET_INFO:
		return get_info(user);
	case VFIO_DEVICE_GET_REGION_INFO:
		return get_region(user);
	case VFIO_DEVICE_GET_IRQ_INFO:
		return get_irq(user);
	case VFIO_DEVICE_RESET:
		return 0;
	}
	return -ENOTTY;
}

static const struct vfio_device_ops mdev_ops = {
	.name = "nvidia-vgpu",
	.init = mdev_dev_init,
	.release = mdev_dev_release,
	.read = mdev_read,
	.write = mdev_write,
	.ioctl = mdev_ioctl,
	.mmap = mdev_mmap,
	.bind_iommufd = vfio_iommufd_emulated_bind,
	.unbind_iommufd = vfio_iommufd_emulated_unbind,
	.attach_ioas = vfio_iommufd_emulated_attach_ioas,
	.detach_ioas = vfio_iommufd_emulated_detach_ioas,
};

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vgpu_mdev *vgpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", vgpu->params);
}

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	struct vgpu_mdev *vgpu = dev_get_drvdata(dev);

	if (count >= sizeof(vgpu->params))
		return -EINVAL;
	strscpy(vgpu->params, buf, sizeof(vgpu->params));
	strim(vgpu->params);
	return count;
}
static DEVICE_ATTR_RW(vgpu_params);

static struct attribute *nvidia_attrs[] = { &dev_attr_vgpu_params.attr, NULL };
static const struct attribute_group nvidia_group = { .name = "nvidia", .attrs = nvidia_attrs };
static const struct attribute_group *nvidia_groups[] = { &nvidia_group, NULL };

static int mdev_probe(struct mdev_device *mdev)
{
	struct vgpu_mdev *vgpu = vfio_alloc_device(vgpu_mdev, vdev, &mdev->dev, &mdev_ops);
	int ret;

	if (IS_ERR(vgpu))
		return PTR_ERR(vgpu);
	dev_set_drvdata(&mdev->dev, vgpu);
	ret = vfio_register_emulated_iommu_dev(&vgpu->vdev);
	if (ret)
		vfio_put_device(&vgpu->vdev);
	return ret;
}

static void mdev_remove(struct mdev_device *mdev)
{
	struct vgpu_mdev *vgpu = dev_get_drvdata(&mdev->dev);

	vfio_unregister_group_dev(&vgpu->vdev);
	vfio_put_device(&vgpu->vdev);
}

static unsigned int available(struct mdev_type *mtype)
{
	struct vgpu_type *type = container_of(mtype, struct vgpu_type, mdev);
	struct vgpu_seat *seat = container_of(mtype->parent, struct vgpu_seat, parent);
	unsigned int room = vgpu_room(seat->card, type->kind);

	if (!seat->pdev->is_virtfn)
		return room;
	return seat->mdevs ? 0 : min(room, 1u);
}

static ssize_t description(struct mdev_type *mtype, char *buf)
{
	const struct vgpu_kind *kind = container_of(mtype, struct vgpu_type, mdev)->kind;

	return sysfs_emit(buf,
			  "num_heads=4, frl_config=60, framebuffer=%uM, max_resolution=7680x4320, max_instance=%u\n",
			  kind->fb_mb, kind->most);
}

static struct mdev_driver vgpu_mdev_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.driver = {
		.name = "nvidia-vgpu",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
		.dev_groups = nvidia_groups,
	},
	.probe = mdev_probe,
	.remove = mdev_remove,
	.get_available = available,
	.show_description = description,
};

int vgpu_mdev_start(void)
{
	return mdev_register_driver(&vgpu_mdev_driver);
}

void vgpu_mdev_stop(void)
{
	mdev_unregister_driver(&vgpu_mdev_driver);
}

int vgpu_mdev_offer(struct vgpu_seat *seat)
{
	const struct vgpu_board *board = seat->card->board;
	unsigned int i;
	int ret;

	for (i = 0; i < board->kinds; i++) {
		seat->types[i].kind = &board->kind[i];
		seat->types[i].mdev.sysfs_name = board->kind[i].id;
		seat->types[i].mdev.pretty_name = board->kind[i].name;
		seat->type_list[i] = &seat->types[i].mdev;
	}
	ret = mdev_register_parent(&seat->parent, &seat->pdev->dev, &vgpu_mdev_driver, seat->type_list, board->kinds);
	seat->is_parent = !ret;
	return ret;
}

void vgpu_mdev_withdraw(struct vgpu_seat *seat)
{
	mdev_unregister_parent(&seat->parent);
}
