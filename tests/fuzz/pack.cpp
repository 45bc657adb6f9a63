// A pack: its cases, their lines, and their tensors as the planes that the lines name.
#include "compare/packs/pack.h"

#include "compare/packs/dump.h"
#include "contract/planes.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/scratch.h"

void assay::fuzz::pack(std::string_view bytes) {
  const auto pack = read_pack(written("fuzz.safetensors", bytes));
  if (!pack) return;
  for (const PackCase& c : pack->cases) {
    dump_key(c.id);
    const auto problem = problem_of(c);
    if (!problem) continue;
    unpinned_of(c, *problem);
    for (const auto& planes : {input_planes(*problem), output_planes(*problem)})
      for (const Plane& plane : planes) {
        const PackPlane* recorded = c.find(plane.name);
        if (!recorded || !recorded->tensor) continue;
        plane_bytes(*recorded->tensor, plane);
        dump_view(*recorded->tensor, plane);
        dump_plane(*recorded->tensor, plane);
      }
  }
}
