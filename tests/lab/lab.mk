# The kernel lab: boots Linux with emulated GPUs in QEMU, installs the project in it and runs tests/lab.
.PHONY: lab lab-shell lab-image

lab: setup ## the kernel lab: everything on a real kernel with a real libvirt (as root)
	@$(BIN)/python -m tests.lab.image
	@$(BIN)/python -m pytest tests/lab -m lab --junitxml=junit-lab.xml --numprocesses=auto --maxprocesses=2 --dist=worksteal

lab-shell: setup ## a shell in the lab's machine, with the project installed
	@$(BIN)/python -m tests.lab.shell

lab-image: setup ## build the lab's image alone, and print where it lies
	@$(BIN)/python -m tests.lab.image
