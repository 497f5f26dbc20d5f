# SPDX-License-Identifier: MIT
# CMake's toolchain for Arm of 64 bits on another machine: Debian's g++-aarch64-linux-gnu, and qemu-user to run what it
# makes. `.ci/matrix --arm` uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
