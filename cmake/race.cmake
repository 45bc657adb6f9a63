# The race checker (fast/simt/race): units with kernel text are compiled with -fsanitize=thread and call our own runtime; libtsan is
# never linked.
option(ASSAY_RACE "Watch kernels on the host executor for data races" OFF)
if(ASSAY_RACE AND ASSAY_SANITIZE MATCHES "address|thread|leak")
  message(FATAL_ERROR "ASSAY_RACE and ASSAY_SANITIZE=${ASSAY_SANITIZE} exclude each other")
endif()

set(race_options
  -fsanitize=thread
  -fno-builtin-memcpy -fno-builtin-memmove -fno-builtin-memset   # copies stay calls, which the runtime wraps
  -gdwarf-4 -g1                                                  # lines for the reports; addr2line misreads clang's DWARF 5
  # The same folder in every clone: the compiler's cache gives one clone what was compiled in another, and reports name files from the
  # root of the sources (fast/simt/race/source_lines.cpp).
  -fdebug-prefix-map=${CMAKE_SOURCE_DIR}=/assay)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND race_options "SHELL:-mllvm -tsan-instrument-read-before-write=1")   # else a read that a write follows goes unseen
endif()

# assay_kernel_text(<target>): its units contain text of kernels; every such target must be named.
function(assay_kernel_text target)
  if(ASSAY_RACE)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${race_options}>")
  endif()
endfunction()
