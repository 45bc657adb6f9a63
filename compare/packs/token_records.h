// Planes that a library stores in one record of bytes for each token: DeepSeek's packed MLA record, as vLLM's
// fp8_ds_mla cache and FlashMLA have it (docs/flavours.md, KV caches). A case that has such a plane,
// "row.record", is taken apart when a pack is read, and judged as any other.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "compare/packs/pack.h"

namespace assay {

// Puts `row.data` and `row.scale_inv` in the place of `row.record`: of each row its E4M3 codes, one binary32
// scale for each 128 of them, and 16-bit values that are not cast. Where the case has the plane `rotary`,
// what these values were made from, `more` gets the case `<id>_rotary` that judges them. `bytes` keeps what
// is made. Errors: another line than `quantize fp8_block` of 1x128 blocks in rows, or bytes that are no such
// records.
std::optional<Error> unpack_records(PackCase&, std::vector<PackCase>& more,
                                    std::deque<std::vector<std::byte>>& bytes);

}  // namespace assay
