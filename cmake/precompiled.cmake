# Precompiled headers: the standard library, fmt and, for tests, GoogleTest, which take 0.6 to 0.8 s of every unit that parses them.
#
# A unit may use such a header only where both were compiled with the same options, so there is one for each set of options, named by a digest of them.
# It is named relative to the build folder, in which Ninja runs the compiler, and comes out of ccache itself: so ccache knows a unit again in another clone and in
# another preset. It takes the digest beside the header for its content (CCACHE_PCH_EXTSUM in CMakeLists.txt).
# A source still includes what it needs: clang-tidy (ci/tidy) and a build with ASSAY_PRECOMPILED=OFF parse it without.
option(ASSAY_PRECOMPILED "Parse the standard library once for all units of equal options (needs g++ and Ninja)" ON)
set(assay_precompiled_headers algorithm array atomic bit charconv chrono cmath cstdint cstdio cstdlib cstring deque filesystem fmt/format.h fstream functional
  iostream iterator limits map memory mutex numeric optional set span sstream stdexcept string string_view thread tuple unordered_map utility variant vector)

# assay_precompile(<target> [header ...]): its sources see those headers and the ones above as if they included them first. Sources that have options or
# definitions of their own stay without.
function(assay_precompile target)
  if(ASSAY_PRECOMPILED AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_GENERATOR STREQUAL "Ninja")
    # At the end of the folder's CMakeLists.txt the target has its options; at the end of what waits there it has its batches (cmake/rooms.cmake).
    cmake_language(EVAL CODE "cmake_language(DEFER CALL cmake_language DEFER CALL assay_precompile_sources ${target} ${ARGN})")
  endif()
endfunction()

function(assay_precompile_sources target)
  assay_precompiled_header(header ${target} ${ARGN})
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "^[^$]+[.]cpp$")   # a header, or a generator expression
      continue()
    endif()
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(NOT definitions AND NOT options)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-Winvalid-pch;-include;${header}" OBJECT_DEPENDS ${CMAKE_BINARY_DIR}/${header}.gch)
    endif()
  endforeach()
endfunction()

# Names the header for the options of a target, relative to the build folder, in `out`, and has it made unless another target has asked for it.
function(assay_precompiled_header out target)
  get_directory_property(folder_options COMPILE_OPTIONS)
  get_target_property(own_options ${target} COMPILE_OPTIONS)
  get_target_property(type ${target} TYPE)
  string(REGEX REPLACE "[$]<[$]<COMPILE_LANGUAGE:CUDA>:[^>]*>" "" own_options "${own_options}")
  string(REGEX REPLACE "[$]<[$]<COMPILE_LANG[A-Z_]*:[A-Z,]*>:-W[^>]*>" "" own_options "${own_options}")
  # Warnings change no code. A header is parsed and not optimized: a unit may read it at another level, where that defines the same macros.
  list(FILTER own_options EXCLUDE REGEX "^-W|^-O[12g]$|NOTFOUND$")
  set(headers ${assay_precompiled_headers} ${ARGN})
  string(REPLACE "${CMAKE_SOURCE_DIR}" "" named_options "${own_options}")   # another clone's header has the same name
  string(SHA256 key "${headers};${type};${folder_options};${named_options};${CMAKE_CXX_FLAGS};${CMAKE_BUILD_TYPE}")
  string(SUBSTRING ${key} 0 12 key)
  set(${out} precompiled/${key}.hxx PARENT_SCOPE)
  if(TARGET precompiled_${key})
    return()
  endif()
  list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>\n")
  list(JOIN headers "" text)
  set(path ${CMAKE_BINARY_DIR}/precompiled/${key})
  file(CONFIGURE OUTPUT ${path}.hxx CONTENT "${text}" @ONLY)
  file(CONFIGURE OUTPUT ${path}.cpp CONTENT "${text}" @ONLY)   # CMake compiles no file that is named as a header
  add_library(precompiled_${key} OBJECT ${path}.cpp)
  set_source_files_properties(${path}.cpp PROPERTIES COMPILE_OPTIONS "-x;c++-header")
  target_compile_options(precompiled_${key} PRIVATE ${own_options})
  if("gtest/gtest.h" IN_LIST ARGN)
    target_link_libraries(precompiled_${key} PRIVATE GTest::gtest)   # its definitions
  endif()
  if(type STREQUAL "EXECUTABLE" AND CMAKE_POSITION_INDEPENDENT_CODE)
    set_target_properties(precompiled_${key} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(precompiled_${key} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
  endif()
  set(script ${CMAKE_SOURCE_DIR}/cmake/precompiled_digest.cmake)
  add_custom_command(OUTPUT ${path}.hxx.gch ${path}.hxx.gch.sum
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_OBJECTS:precompiled_${key}> ${path}.hxx.gch
    COMMAND ${CMAKE_COMMAND} -D HEADER=${path}.hxx.gch -P ${script}
    DEPENDS $<TARGET_OBJECTS:precompiled_${key}> ${script} VERBATIM COMMENT "Precompiled header ${key}")
  add_custom_target(precompiled_${key}_file DEPENDS ${path}.hxx.gch)
  add_dependencies(${target} precompiled_${key}_file)
endfunction()
