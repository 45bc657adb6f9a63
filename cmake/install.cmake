# `cmake --install`: the program, what it finds by name, the rooms as libraries, the headers, and the package that find_package(assay) reads (docs/library.md).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# One target for users. The kernels' compile options stay where they are: they are no business of somebody's own kernels.
add_library(assay_library INTERFACE)
set_target_properties(assay_library PROPERTIES EXPORT_NAME assay)
target_compile_features(assay_library INTERFACE cxx_std_20)
target_link_libraries(assay_library INTERFACE assay_compare assay_reference $<LINK_ONLY:assay_fast>)

get_property(rooms GLOBAL PROPERTY ASSAY_ROOMS)
install(TARGETS assay_library ${rooms} EXPORT assay ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT assay NAMESPACE assay:: FILE assayTargets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay)
get_target_property(ASSAY_LINKS assay_fast LINK_LIBRARIES)
configure_package_config_file(cmake/assayConfig.cmake.in ${CMAKE_BINARY_DIR}/assayConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/assayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/assayConfig.cmake ${CMAKE_BINARY_DIR}/assayConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay)

# Includes are written from the repository root; installed they are written the same, from include/assay.
file(GLOB_RECURSE headers RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
  contract/*.h contract/*.def fixtures/*.h training/*.h compare/*.h reference/subject.h fast/subject_*.h fast/device_memory.h)
list(FILTER headers EXCLUDE REGEX "^training/mpi/")   # its library is in the preset mpi alone
foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/assay/${folder})
endforeach()
install(FILES tests/assay_gtest.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/assay)

# bin/ and share/assay/ keep their distance: the program finds its suites by it (fixtures/suite.cpp).
install(TARGETS assay RUNTIME DESTINATION bin)
install(DIRECTORY fixtures/suites fixtures/shapes DESTINATION share/assay/fixtures)
install(FILES fixtures/from_python/assay_pack.py DESTINATION share/assay/python)
install(DIRECTORY examples DESTINATION share/assay)
install(FILES LICENSE NOTICE DESTINATION share/doc/assay)
