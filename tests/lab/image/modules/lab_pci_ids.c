// SPDX-License-Identifier: GPL-2.0
/*
 * Shows PCI functions to Linux under other ids, so that a board which QEMU can emulate (an igb network card
 * with SR-IOV) stands where a GPU with SR-IOV would.
 *
 * Each rule of the parameter "show" reads
 *
 *	ADDRESS-PREFIX/FROM_VENDOR:FROM_DEVICE/VENDOR:DEVICE:CLASS:SUBSYSTEM
 *
 * in hexadecimal, as in 0000:07:/8086:10c9/10de:2235:030200:145a. Only what the kernel keeps about a function
 * changes; its configuration space stays as the board has it.
 */
#include <linux/module.h>
#include <linux/pci.h>

#define MAX_RULES 16

static char *show[MAX_RULES];
static int rules;
module_param_array(show, charp, &rules, 0444);
MODULE_PARM_DESC(show, "rules: ADDRESS-PREFIX/VENDOR:DEVICE/VENDOR:DEVICE:CLASS:SUBSYSTEM");

static char stubborn[16];
module_param_string(stubborn, stubborn, sizeof(stubborn), 0600);
MODULE_PARM_DESC(stubborn, "address of a function that vfio-pci cannot take, though every write succeeds");

struct rule {
	char prefix[16];
	unsigned int from_vendor, from_device;
	unsigned int vendor, device, class, subsystem;
};

static bool parse_rule(const char *text, struct rule *rule)
{
	return sscanf(text, "%15[0123456789abcdef:.]/%x:%x/%x:%x:%x:%x", rule->prefix,
		      &rule->from_vendor, &rule->from_device, &rule->vendor,
		      &rule->device, &rule->class, &rule->subsystem) == 7;
}

static bool applies(const struct rule *rule, const struct pci_dev *pdev)
{
	return pdev->vendor == rule->from_vendor &&
	       pdev->device == rule->from_device &&
	       !strncmp(pci_name(pdev), rule->prefix, strlen(rule->prefix));
}

static void relabel(struct pci_dev *pdev)
{
	struct rule rule;
	int i;

	for (i = 0; i < rules; i++) {
		if (!parse_rule(show[i], &rule) || !applies(&rule, pdev))
			continue;
		pdev->vendor = rule.vendor;
		pdev->device = rule.device;
		pdev->class = rule.class;
		pdev->revision = 0xa1;
		pdev->subsystem_vendor = rule.vendor;
		pdev->subsystem_device = rule.subsystem;
		pci_info(pdev, "shown as %04x:%04x\n", rule.vendor, rule.device);
		return;
	}
}

static bool is_stubborn(const struct pci_dev *pdev)
{
	size_t length = strcspn(stubborn, "\n");

	return length && pdev->dev.driver && !strcmp(pdev->dev.driver->name, "vfio-pci") &&
	       strlen(pci_name(pdev)) == length && !strncmp(pci_name(pdev), stubborn, length);
}

/*
 * A new function is relabelled before a driver is looked for, and before user space is told. A stubborn one looks
 * like a bridge just while vfio-pci tries it: vfio-pci declines, and the kernel tells nobody who wrote to sysfs.
 */
static int on_bus_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);

	switch (event) {
	case BUS_NOTIFY_ADD_DEVICE:
		relabel(pdev);
		break;
	case BUS_NOTIFY_BIND_DRIVER:
		if (is_stubborn(pdev))
			pdev->hdr_type = PCI_HEADER_TYPE_BRIDGE;
		break;
	case BUS_NOTIFY_DRIVER_NOT_BOUND:
		if (is_stubborn(pdev))
			pdev->hdr_type = PCI_HEADER_TYPE_NORMAL;
		break;
	}
	return NOTIFY_OK;
}

static struct notifier_block bus_events = { .notifier_call = on_bus_event };

static int __init ids_init(void)
{
	struct pci_dev *pdev = NULL;
	struct rule rule;
	int i;

	for (i = 0; i < rules; i++) {
		if (!parse_rule(show[i], &rule)) {
			pr_err("lab_pci_ids: cannot read rule \"%s\"\n", show[i]);
			return -EINVAL;
		}
	}
	bus_register_notifier(&pci_bus_type, &bus_events);
	for_each_pci_dev(pdev)
		relabel(pdev);
	return 0;
}

static void __exit ids_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &bus_events);
}

module_init(ids_init);
module_exit(ids_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Shows PCI functions under other ids");
