# Run at every build: writes ${OUT}, the definitions of compare/report/build.h, and leaves it alone when nothing has changed.
cmake_policy(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "no git")
endif()
file(GLOB_RECURSE kernels RELATIVE ${SOURCE} ${SOURCE}/fast/*.cu ${SOURCE}/fast/*.cuh)
list(SORT kernels)
set(hashes "")
foreach(kernel IN LISTS kernels)
  file(SHA256 ${SOURCE}/${kernel} hash)
  string(APPEND hashes "${kernel} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 32 hash)
file(CONFIGURE OUTPUT ${OUT} CONTENT "#include \"compare/report/build.h\"
const char* const assay::build::kVersion = \"${VERSION}\";
const char* const assay::build::kCommit = \"${commit}\";
const char* const assay::build::kKernels = \"${hash}\";
")
