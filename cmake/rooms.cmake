# Targets of the rooms and of their tests.

# What nearly every unit of a room includes. Headers of the project itself are in it only where an edit of them rebuilds the room anyway.
set(assay_common_headers <algorithm> <array> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>
  ${CMAKE_SOURCE_DIR}/contract/problem.h ${CMAKE_SOURCE_DIR}/contract/planes.h)

# assay_room(<name> SOURCES ... [LINKS ...] [PRECOMPILE ...]): the static library of one room. Includes are written from the repository root.
# PRECOMPILE: headers for every unit's precompiled header, beside assay_common_headers; without it there is none.
function(assay_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS;PRECOMPILE" ${ARGN})
  add_library(assay_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(assay_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<INSTALL_INTERFACE:include/assay>)
  target_link_libraries(assay_${name} PUBLIC ${ROOM_LINKS})
  if(ASSAY_PRECOMPILE AND ROOM_PRECOMPILE)
    target_precompile_headers(assay_${name} PRIVATE ${assay_common_headers} ${ROOM_PRECOMPILE})
  endif()
  set_target_properties(assay_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY ASSAY_ROOMS assay_${name})   # cmake/install.cmake
endfunction()

# assay_test(<name> SOURCES ... [LINKS ...]): one GoogleTest program bin/test_<name>; ci/test runs every bin/test_*.
function(assay_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;LINKS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(test_${name} ${TEST_SOURCES} ${CMAKE_SOURCE_DIR}/tests/temporary_folder.cpp)
  target_link_libraries(test_${name} PRIVATE ${TEST_LINKS} GTest::gtest_main)
  target_compile_definitions(test_${name} PRIVATE ASSAY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(ASSAY_PRECOMPILE)
    target_precompile_headers(test_${name} PRIVATE ${assay_common_headers} <gtest/gtest.h>)
  endif()
  add_test(NAME ${name} COMMAND test_${name})
endfunction()
