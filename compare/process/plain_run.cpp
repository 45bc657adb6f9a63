#include "compare/process/plain_run.h"

#include <exception>
#include <string>

namespace assay {

Result<std::vector<PlaneData>> plain_run(Subject& subject, const Problem& problem,
                                         const std::vector<PlaneData>& inputs) {
  const std::vector<Plane> read = input_planes(problem);
  std::vector<ConstBuffer> from;
  for (const Plane& plane : read) {
    const PlaneData* given = find_plane(inputs, plane.name);
    if (!given || given->bytes.size() != plane.bytes())
      return Error{"expected the input " + plane.name + " with " + std::to_string(plane.bytes()) +
                       " bytes, found " +
                       (given ? std::to_string(given->bytes.size()) + " bytes" : "no such plane"),
                   0, ""};
    from.push_back({&plane, given->bytes});
  }
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(problem))
    out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  std::vector<Buffer> to;
  for (PlaneData& data : out) to.push_back({&data.plane, data.bytes});
  try {
    subject.run(problem, from, to, Environment{});
  } catch (const std::exception& error) {
    return Error{error.what(), 0, ""};
  }
  return out;
}

}  // namespace assay
