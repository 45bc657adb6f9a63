# What `assay doctor` says about the build: compile definitions of compare/report/doctor.cpp, and compare/report/build.h, written anew at every build.
set(doctor_toolkit "")
if(ASSAY_CUDA AND CMAKE_CUDA_COMPILER)
  set(doctor_toolkit "${CMAKE_CUDA_COMPILER_VERSION}")
endif()
string(TOUPPER "${CMAKE_BUILD_TYPE}" doctor_type)
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${doctor_type}}" doctor_flags)
get_directory_property(doctor_options COMPILE_OPTIONS)
string(REGEX REPLACE "\\$<[^;]*:(-[^;>]*)>" "\\1" doctor_options "${doctor_options}")
string(REPLACE ";" " " doctor_options "${doctor_options}")
set(doctor_sanitizers ${ASSAY_SANITIZE})
if(ASSAY_RACE)
  list(APPEND doctor_sanitizers race)
endif()
list(JOIN doctor_sanitizers "," doctor_sanitizers)
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/report/doctor.cpp PROPERTIES COMPILE_DEFINITIONS
  "ASSAY_FLAGS=\"${doctor_flags} ${doctor_options}\";ASSAY_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";ASSAY_SANITIZERS=\"${doctor_sanitizers}\";ASSAY_CUDA_TOOLKIT=\"${doctor_toolkit}\";ASSAY_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\"")
add_custom_target(assay_build_facts
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DVERSION=${PROJECT_VERSION} -DOUT=${CMAKE_CURRENT_BINARY_DIR}/build.cpp -P ${CMAKE_SOURCE_DIR}/cmake/build_facts.cmake
  BYPRODUCTS ${CMAKE_CURRENT_BINARY_DIR}/build.cpp)
target_sources(assay_compare PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/build.cpp)
add_dependencies(assay_compare assay_build_facts)
