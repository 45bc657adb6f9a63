// Dumps: the cases of packs in the order of a training step, and their planes as a line has them. What check,
// explain and identify read.
#pragma once
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "compare/packs/pack.h"
#include "compare/text/printable.h"
#include "contract/problem.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// The place of a case in a dump as far as file and case names tell: by step, module, role and direction, then
// by name. "step12" and "iter 12" are steps, numbers count by value; input before weight before output before
// their gradients, row before col.
struct DumpKey {
  struct Word {
    std::string text;
    uint64_t number = 0;  // of a word of digits
    bool operator<(const Word& other) const {
      return std::tie(number, text) < std::tie(other.number, other.text);
    }
  };
  uint64_t step = 0;
  std::vector<Word> module;
  int role = 0, direction = 0;
  std::string name;
  bool operator<(const DumpKey& o) const {
    return std::tie(step, module, role, direction, name) <
           std::tie(o.step, o.module, o.role, o.direction, o.name);
  }
};
DumpKey dump_key(const std::string& name);
inline bool dump_order(const std::string& a, const std::string& b) { return dump_key(a) < dump_key(b); }

struct DumpCase {
  DumpKey key;
  const Pack* pack = nullptr;
  const PackCase* recorded = nullptr;
  std::string where() const { return printable(pack->path + ":" + recorded->id); }
};
struct Dump {
  std::vector<std::unique_ptr<Pack>> packs;  // keep the bytes mapped
  std::vector<DumpCase> cases;               // in dump order
};
// Reads packs, and folders that are searched for *.safetensors. Errors: a path that does not exist or holds
// none, a pack that cannot be read. Where `unread` is given, a file of a folder that cannot be read is put
// there instead, as long as another one can.
Result<Dump> read_dump(const std::vector<std::string>& paths, std::vector<Error>* unread = nullptr);

// What the case's line says. Errors: there is none, or it is invalid.
Result<Problem> problem_of(const PackCase&);

// A recorded plane as the judge wants it. A compact one that came without its padding gets the padding of
// `like`, or zeros.
Result<PlaneData> dump_plane(const safetensors::Tensor& tensor, const Plane& plane,
                             const PlaneData* like = nullptr);

// The same where it lies: nothing is copied, and a compact plane that came without its padding is laid out
// without it.
Result<PlaneView> dump_view(const safetensors::Tensor& tensor, const Plane& plane);

// Whether the keys of a line say every element of an input plane: what is given, what an amax slot held, a
// noop flag, sizes of members, random bits.
bool said_by_keys(const std::string& plane);

// The inputs of a case: planes of the pack, and what keys of the line say. Tensors come from the pack alone,
// unless the line names a fill; `reference` makes what is itself quantized. Error: an input plane that
// neither gives, by name.
Result<std::vector<PlaneData>> dump_inputs(const PackCase&, const Problem&, Subject& reference);

}  // namespace assay
