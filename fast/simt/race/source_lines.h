// Where in the source a place of the running program lies, from its debug information, as addr2line of the
// binutils reads it.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace assay::simt::race {

// The place that a call returns to, as Access keeps it; 0 where it is outside the program's image.
uint32_t place_of(const void* return_address);

// For each place "fast/move/pair.cuh:93", or with the lines into which it was inlined:
// "fast/move/patch.cuh:221, from fast/move/pair.cuh:116". Lines of fast/simt and of the system's headers are
// left out. Without debug information, or without addr2line, the address: "program+0x1234". Not for two OS
// threads at once.
std::map<uint32_t, std::string> source_lines(std::span<const uint32_t> places);

}  // namespace assay::simt::race
