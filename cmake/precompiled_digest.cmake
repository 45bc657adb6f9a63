# Writes the digest of a precompiled header beside it, which ccache hashes for each unit in the place of some hundred megabytes.
#   cmake -D HEADER=<file> -P precompiled_digest.cmake
file(SHA256 ${HEADER} digest)
file(WRITE ${HEADER}.sum "${digest}\n")
