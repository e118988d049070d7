// SPDX-License-Identifier: GPL-2.0
/* vGPUs of the vendor's own VFIO scheme: a VF with a type, given to a guest as it is. */
#include "vgpu.h"

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vgpu_seat *seat = dev_get_drvdata(dev);
	const struct vgpu_board *board = seat->card->board;
	int len = sysfs_emit(buf, "ID    : vGPU Name\n");
	unsigned int i;

	if (seat->current_kind)
		return len;
	for (i = 0; i < board->kinds; i++)
		if (vgpu_room(seat->card, &board->kind[i]))
			len += sysfs_emit_at(buf, len, "%-5s : %s\n", board->kind[i].id, board->kind[i].name);
	return len;
}

static ssize_t current_vgpu_type_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vgpu_seat *seat = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", seat->current_kind ? seat->current_kind->id : "0");
}

static const struct vgpu_kind *kind_of(const struct vgpu_board *board, unsigned int id)
{
	unsigned int i, number;

	for (i = 0; i < board->kinds; i++)
		if (!kstrtouint(board->kind[i].id, 10, &number) && number == id)
			return &board->kind[i];
	return NULL;
}

static int give_type(struct vgpu_seat *seat, unsigned int id)
{
	const struct vgpu_kind *kind = kind_of(seat->card->board, id);
	int ret;

	if (!kind || seat->current_kind)
		return -EIO;
	ret = vgpu_take(seat->card, kind);
	if (!ret)
		seat->current_kind = kind;
	return ret;
}

static int take_type(struct vgpu_seat *seat)
{
	if (seat->core.vdev.open_count)
		return -EBUSY;
	if (seat->current_kind)
		vgpu_give(seat->card, seat->current_kind);
	seat->current_kind = NULL;
	seat->params[0] = '\0';
	return 0;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	struct vgpu_seat *seat = dev_get_drvdata(dev);
	unsigned int id;
	int ret = kstrtouint(buf, 10, &id);

	if (ret)
		return ret;
	ret = id ? give_type(seat, id) : take_type(seat);
	if (ret)
		dev_err(dev, "Failed to %s vgpu %u: %d\n", id ? "create" : "delete", id, ret);
	return ret ? ret : count;
}

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vgpu_seat *seat = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", seat->params);
}

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	struct vgpu_seat *seat = dev_get_drvdata(dev);

	if (count >= sizeof(seat->params))
		return -EINVAL;
	if (!seat->current_kind)
		return -EIO;
	strscpy(seat->params, buf, sizeof(seat->params));
	strim(seat->params);
	return count;
}

static DEVICE_ATTR_RO(creatable_vgpu_types);
static DEVICE_ATTR_RW(current_vgpu_type);
static DEVICE_ATTR_RW(vgpu_params);

static struct attribute *nvidia_attrs[] = {
	&dev_attr_creatable_vgpu_types.attr,
	&dev_attr_current_vgpu_type.attr,
	&dev_attr_vgpu_params.attr,
	NULL
};
static const struct attribute_group nvidia_group = { .name = "nvidia", .attrs = nvidia_attrs };

/* A VF without a type is no device that a guest could have. */
static int vf_open(struct vfio_device *vdev)
{
	struct vgpu_seat *seat = container_of(vdev, struct vgpu_seat, core.vdev);
	int ret;

	if (!seat->current_kind)
		return -ENODEV;
	ret = vfio_pci_core_enable(&seat->core);
	if (ret)
		return ret;
	vfio_pci_core_finish_enable(&seat->core);
	return 0;
}

const struct vfio_device_ops vgpu_vf_ops = {
	.name = "nvidia-vgpu-vfio",
	.init = vfio_pci_core_init_dev,
	.release = vfio_pci_core_release_dev,
	.open_device = vf_open,
	.close_device = vfio_pci_core_close_device,
	.ioctl = vfio_pci_core_ioctl,
	.device_feature = vfio_pci_core_ioctl_feature,
	.read = vfio_pci_core_read,
	.write = vfio_pci_core_write,
	.mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_pci_core_match,
	.bind_iommufd = vfio_iommufd_physical_bind,
	.unbind_iommufd = vfio_iommufd_physical_unbind,
	.attach_ioas = vfio_iommufd_physical_attach_ioas,
	.detach_ioas = vfio_iommufd_physical_detach_ioas,
};

int vgpu_vf_offer(struct vgpu_seat *seat)
{
	int ret = vfio_pci_core_register_device(&seat->core);

	if (ret)
		return ret;
	ret = sysfs_create_group(&seat->pdev->dev.kobj, &nvidia_group);
	if (ret) {
		vfio_pci_core_unregister_device(&seat->core);
		return ret;
	}
	seat->is_typed_vf = true;
	return 0;
}

void vgpu_vf_withdraw(struct vgpu_seat *seat)
{
	sysfs_remove_group(&seat->pdev->dev.kobj, &nvidia_group);
	vfio_pci_core_unregister_device(&seat->core);
	if (seat->current_kind)
		vgpu_give(seat->card, seat->current_kind);
}
