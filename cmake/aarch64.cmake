# Compiles for 64-bit ARM with Debian's cross compiler (the preset `neon`); ci/neon runs what comes out under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
# Libraries that are more than headers are Debian's for arm64, which ci/neon unpacks below build/neon. Headers alone are of no architecture: this machine's serve.
cmake_path(SET assay_arm64 NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/neon/root)
set(CMAKE_FIND_ROOT_PATH ${assay_arm64} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
# Boost's own configuration would want the packages of all of Boost; FindBoost takes the headers and the one library.
set(Boost_NO_BOOST_CMAKE ON)
# g++ looks for a cross linker under a name that mold's package does not give it.
set(MOLD OFF)
