#include "fast/ptx/machine.h"

namespace assay::ptx {

void fail(const Warp& w, const Instruction& i, int lane, const std::string& what) {
  const Block& b = *w.block;
  if (w.speaks_for >= 0) lane = w.speaks_for;
  const auto at = [](const Dim& d) {
    return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
  };
  std::string where = "PTX line " + std::to_string(i.line);
  if (i.source) {
    const SourceLine& s = b.kernel->sources[i.source - 1];
    where = s.file + ":" + std::to_string(s.line) + " (" + where + ")";
  }
  throw Fault("kernel '" + b.kernel->name + "' block " + at(b.index) + " thread " +
              std::to_string(w.index * kLanes + static_cast<unsigned>(lane)) + ": " + b.kernel->text(i) +
              " " + what + "; " + where);
}

namespace {

std::byte* resolve_global(Warp& w, const Instruction& i, int lane, uint64_t address, unsigned bytes,
                          bool write) {
  Block& b = *w.block;
  Allocation& last = write ? b.last_store : b.last_load;
  if (address - last.base <= last.bytes && bytes <= last.bytes - (address - last.base))
    return reinterpret_cast<std::byte*>(address);
  const Allocation* a = b.memory->holding(address, bytes);
  const std::string size = "of " + std::to_string(bytes) + " bytes";
  if (!a) fail(w, i, lane, size + " outside every allocation; " + b.memory->nearest(address));
  if (write && !a->writable) fail(w, i, lane, size + " writes to '" + a->name + "', which is an input");
  last = *a;
  return reinterpret_cast<std::byte*>(address);
}

std::byte* within(Warp& w, const Instruction& i, int lane, std::byte* base, uint64_t size, uint64_t address,
                  unsigned bytes, const char* space) {
  if (address > size || bytes > size - address)
    fail(w, i, lane,
         "of " + std::to_string(bytes) + " bytes outside " + space + " of " + std::to_string(size) +
             " bytes, offset " + std::to_string(address));
  return base + address;
}

// The space of a generic address, which becomes an address in it.
Space space_of(uint64_t& address) {
  if (address - kSharedWindow < kWindowBytes) return address -= kSharedWindow, Space::shared;
  if (address - kLocalWindow < kWindowBytes) return address -= kLocalWindow, Space::local;
  if (address - kParameterWindow < kWindowBytes) return address -= kParameterWindow, Space::param;
  return Space::global;
}

}  // namespace

Space located(const Instruction& i, uint64_t& address) {
  if (i.space == Space::generic) return space_of(address);
  if (i.space == Space::shared && address - kSharedWindow < kWindowBytes) address -= kSharedWindow;
  return i.space;
}

uint64_t shared_offset(Warp& w, const Instruction& i, int lane, uint64_t address) {
  if (address - kSharedWindow >= kWindowBytes) return address;
  if (!w.block->generic_as_shared)
    fail(w, i, lane,
         "is given a generic address, and .shared asks for one of shared memory, as cvta.to.shared gives it "
         "(a launch file takes its lower half, as GPUs do, with \"addresses\": \"lower_halves\")");
  return address - kSharedWindow;
}

std::byte* resolve(Warp& w, const Instruction& i, int lane, uint64_t address, unsigned bytes, bool write) {
  Block& b = *w.block;
  if (i.space == Space::shared) address = shared_offset(w, i, lane, address);
  if (address % bytes) {
    uint64_t at = address;
    const Space space = located(i, at);
    fail(w, i, lane,
         "of " + std::to_string(bytes) + " bytes at an address that is no multiple of them: " +
             (space == Space::global ? b.memory->place(at) : "offset " + std::to_string(at)));
  }
  switch (located(i, address)) {
    case Space::shared:
      return within(w, i, lane, b.shared.data(), b.shared.size(), address, bytes, "shared memory");
    case Space::local: {
      const uint64_t each = b.kernel->local_bytes;
      return within(w, i, lane, w.local.data() + static_cast<uint64_t>(lane) * each, each, address, bytes,
                    "local memory");
    }
    case Space::param: {
      if (write) fail(w, i, lane, "writes to parameters");
      auto* base = const_cast<std::byte*>(b.launch->parameters.data());
      return within(w, i, lane, base, b.launch->parameters.size(), address, bytes, "the parameters");
    }
    case Space::constant:
      if (write) fail(w, i, lane, "writes to constant memory");
      break;
    default: break;
  }
  return resolve_global(w, i, lane, address, bytes, write);
}

}  // namespace assay::ptx
