# Targets of the rooms and of their tests.

# A first build parses the same headers a few hundred times, so sources that keep no names apart are compiled in batches. clang-tidy, and whoever wants to know that
# a source includes what it needs, compiles each alone.
option(ASSAY_BATCHES "Compile the sources of a room in batches (needs python3)" ON)
find_package(Python3 QUIET COMPONENTS Interpreter)

# assay_batches(<target> <lines>): sources of the target share a unit of at most so many lines where cmake/batches.py finds that they may.
function(assay_batches target lines)
  if(NOT ASSAY_BATCHES OR NOT Python3_FOUND)
    return()
  endif()
  get_target_property(listed ${target} SOURCES)
  set(sources)
  foreach(source IN LISTS listed)
    if(NOT source MATCHES "^[^$]+[.]cpp$")   # a header, or a generator expression
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND sources ${source})
  endforeach()
  set(script ${CMAKE_SOURCE_DIR}/cmake/batches.py)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${script} ${lines} ${sources} OUTPUT_VARIABLE rows COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" rows "${rows}")
  foreach(row IN LISTS rows)
    string(REGEX MATCH "^([0-9]+) (.*)$" matched "${row}")
    set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES UNITY_GROUP batch_${CMAKE_MATCH_1})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes a source that another one includes for a header, in which an anonymous namespace would be a mistake.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  # An edit can bring a name that two sources of a batch then share.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script} ${sources})
endfunction()

# assay_room(<name> SOURCES ... [LINKS ...]): the static library of one room. Includes are written from the repository root.
function(assay_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS" ${ARGN})
  add_library(assay_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(assay_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<INSTALL_INTERFACE:include/assay>)
  target_link_libraries(assay_${name} PUBLIC ${ROOM_LINKS})
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
  assay_batches(test_${name} 1000)
  add_test(NAME ${name} COMMAND test_${name})
endfunction()
