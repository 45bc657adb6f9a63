# Targets of the rooms and of their tests.

# A first build parses the same headers a few hundred times, so sources that keep no names apart are compiled in batches. clang-tidy, and whoever wants to know that
# a source includes what it needs, compiles each alone.
option(ASSAY_BATCHES "Compile the sources of a room in batches (needs python3)" ON)
find_package(Python3 QUIET COMPONENTS Interpreter)

# assay_batches(<target> <lines>): sources of the target share a unit of at most so many lines where cmake/batches.py finds that they may. At the end of the
# folder's CMakeLists.txt, where it is known which sources have compile options of their own and stay alone.
function(assay_batches target lines)
  if(ASSAY_BATCHES AND Python3_FOUND)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL assay_make_batches ${target} ${lines})")
  endif()
endfunction()

# The batches are written here and not by CMake's UNITY_BUILD: that names each source by its whole path, with which ccache knows no batch again in another clone.
function(assay_make_batches target lines)
  get_target_property(listed ${target} SOURCES)
  set(sources)
  foreach(source IN LISTS listed)
    if(NOT source MATCHES "^[^$]+[.]cpp$")   # a header, or a generator expression
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${source} generated)
    if(generated)   # it is written while the project builds: the first configure cannot read it
      continue()
    endif()
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(NOT definitions AND NOT options)
      list(APPEND sources ${source})
    endif()
  endforeach()
  set(script ${CMAKE_SOURCE_DIR}/cmake/batches.py)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${script} ${CMAKE_CURRENT_BINARY_DIR}/batches/${target}_ ${lines} ${sources}
    OUTPUT_VARIABLE rows COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" rows "${rows}")
  set(units)
  foreach(row IN LISTS rows)
    string(REGEX MATCH "^([^ ]+) (.*)$" matched "${row}")
    list(APPEND units ${CMAKE_MATCH_1})
    set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
  list(REMOVE_DUPLICATES units)
  target_sources(${target} PRIVATE ${units})
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
  assay_precompile(assay_${name})
endfunction()

# assay_test(<name> SOURCES ... [LINKS ...]): one GoogleTest program bin/test_<name>; ci/test runs every bin/test_*.
function(assay_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;LINKS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(test_${name} ${TEST_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${TEST_LINKS} test_environment GTest::gtest_main)
  assay_batches(test_${name} 4000)
  assay_precompile(test_${name} gtest/gtest.h)
  add_test(NAME ${name} COMMAND test_${name})
endfunction()
