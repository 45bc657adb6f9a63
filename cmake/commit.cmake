# Run at every build: writes ${OUT} with the commit that is built, and leaves it alone when that has not changed.
cmake_policy(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "no git")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "namespace assay { extern const char* const kCommit; const char* const kCommit = \"${commit}\"; }\n")
