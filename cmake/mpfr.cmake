# MPFR, a witness that neither side wrote, where it is at hand: the subject `mpfr` (fixtures/mpfr) and tests that compute everything a second time.
option(ASSAY_MPFR "Build what MPFR witnesses, where mpfr.h is found" ON)
if(ASSAY_MPFR)
  find_path(MPFR_INCLUDE mpfr.h)
  find_library(MPFR_LIBRARY mpfr)
  find_library(GMP_LIBRARY gmp)
endif()
if(ASSAY_MPFR AND MPFR_INCLUDE AND MPFR_LIBRARY AND GMP_LIBRARY)
  set(ASSAY_HAVE_MPFR 1)
  message(STATUS "MPFR: ${MPFR_INCLUDE}/mpfr.h")
else()
  set(ASSAY_HAVE_MPFR 0)
  message(STATUS "MPFR: absent, what it witnesses counts as skipped")
endif()

# assay_use_mpfr(<target>): its sources know by ASSAY_HAVE_MPFR whether they may include mpfr.h.
function(assay_use_mpfr target)
  target_compile_definitions(${target} PRIVATE ASSAY_HAVE_MPFR=${ASSAY_HAVE_MPFR})
  if(ASSAY_HAVE_MPFR)
    target_include_directories(${target} SYSTEM PRIVATE ${MPFR_INCLUDE})
    # Who installs the libraries finds MPFR by its name.
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${MPFR_LIBRARY}> $<BUILD_INTERFACE:${GMP_LIBRARY}> $<INSTALL_INTERFACE:mpfr> $<INSTALL_INTERFACE:gmp>)
  endif()
endfunction()
