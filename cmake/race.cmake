# The race checker (fast/simt/race): units with kernel text are compiled with -fsanitize=thread and call our own runtime; libtsan is
# never linked.
option(ASSAY_RACE "Watch kernels on the host executor for data races" OFF)
if(ASSAY_RACE AND ASSAY_SANITIZE MATCHES "address|thread|leak")
  message(FATAL_ERROR "ASSAY_RACE and ASSAY_SANITIZE=${ASSAY_SANITIZE} exclude each other")
endif()

# assay_kernel_text(<target>): its units contain text of kernels; every such target must be named.
function(assay_kernel_text target)
  if(ASSAY_RACE)
    # Copies stay calls, which the runtime wraps. Line tables for the reports.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;-fno-builtin-memcpy;-fno-builtin-memmove;-fno-builtin-memset;-g1>)
  endif()
endfunction()
