#include "python/dumped.h"

#include <utility>

#include "compare/packs/dump.h"
#include "python/line.h"

namespace assay::python {

struct Dumped::Held {
  Dump dump;
};

Dumped::Dumped(const std::vector<std::string>& paths) : held_(std::make_unique<Held>()) {
  auto dump = read_dump(paths);
  if (!dump) throw Failure("run", dump.error());
  held_->dump = std::move(*dump);
}
Dumped::~Dumped() = default;

json::Value Dumped::facts() const {
  json::Value cases = json::array();
  for (const DumpCase& c : held_->dump.cases) {
    json::Value planes = json::array();
    for (const PackPlane& p : c.recorded->planes) {
      json::Value shape = json::array();
      if (p.tensor)
        for (const int64_t n : p.tensor->shape) shape.push(n);
      planes.push(json::object({{"name", p.name},
                                {"dtype", p.tensor ? safetensors::name(p.tensor->dtype) : std::string_view{}},
                                {"shape", shape},
                                {"digest", p.digest}}));
    }
    cases.push(json::object({{"id", c.recorded->id},
                             {"pack", c.pack->path},
                             {"line", c.recorded->line},
                             {"unpinned", c.recorded->unpinned},
                             {"planes", planes}}));
  }
  return json::object({{"cases", cases}});
}

std::span<const std::byte> Dumped::bytes(size_t case_index, size_t plane_index) const {
  return held_->dump.cases.at(case_index).recorded->planes.at(plane_index).tensor.value().bytes;
}

}  // namespace assay::python
