// One call of a plugin of the third set: the line, its planes, and the reference as a part that a bug is put
// around. A bug may run the reference on another line or on other inputs, and may change what came out.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "contract/subject.h"

namespace assay::third {

struct Call {
  const Problem& problem;
  std::span<const ConstBuffer> inputs;
  std::span<const Buffer> outputs;

  bool has_output(std::string_view name) const;
  // Throw std::invalid_argument where the line has no such plane.
  const ConstBuffer& input(std::string_view name) const;
  const Buffer& output(std::string_view name) const;

  // Writes the right bytes.
  void right() const;
  // Writes what the reference makes of another line that has the same planes.
  void right_for(const Problem&) const;
};

// The reference on a line of its own, whose inputs are those of the call by name and size and can be changed.
class Rerun {
 public:
  Rerun(Problem, const Call&);

  // An input's own bytes; zeros where the call has no such plane.
  Buffer input(std::string_view name);
  bool has_input(std::string_view name) const;
  void run();
  const Buffer& output(std::string_view name) const;
  // Copies an output to the plane of the call that is called `to`, of the same size.
  void give(std::string_view output, const Call&, std::string_view to) const;
  void give(std::string_view output, const Call& call) const { give(output, call, output); }

 private:
  Problem problem_;
  std::vector<Plane> in_, out_;
  std::vector<std::vector<std::byte>> in_bytes_, out_bytes_;
  std::vector<Buffer> outputs_;
};

}  // namespace assay::third
