// What a plugin answers: its name, reasons and messages, the bytes that it writes, its times; and the verdict
// in which they cross the pipe.
#include "compare/subjects/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

#include "compare/judge/verdict.h"
#include "compare/process/guarded_run.h"
#include "contract/line.h"
#include "tests/fuzz/readers.h"

namespace {

using namespace assay;

// bin/<this program> finds plugins/libfuzz_answers.so beside its folder.
struct Library {
  std::string path = (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
                      "plugins/libfuzz_answers.so")
                         .string();
  std::unique_ptr<Subject> subject;
  void (*give)(const unsigned char*, size_t) = nullptr;
  Problem problem = *parse_line("quantize nvfp4 3x33 bf16 dir=both");
  std::vector<PlaneData> inputs;
  Library() {
    auto made = make_plugin_subject(path, nullptr);
    if (!made) throw std::runtime_error(made.error().text());
    subject = std::move(*made);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    give = reinterpret_cast<decltype(give)>(library ? dlsym(library, "fuzz_answers") : nullptr);
    if (!give) throw std::runtime_error("no fuzz_answers in " + path);
    for (const Plane& plane : input_planes(problem))
      inputs.push_back({plane, std::vector<std::byte>(plane.bytes())});
  }
};

}  // namespace

void assay::fuzz::plugin(std::string_view bytes) {
  static Library library;
  library.give(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  Verdict verdict;
  verdict.subject = library.subject->name();
  verdict.reason = library.subject->supports(library.problem).why;
  const Execution done = execute(*library.subject, library.problem, library.inputs, {});
  verdict.served = done.served.by;
  if (done.error) verdict.breaches.push_back(complaint("run", verdict.subject, *done.error));
  if (done.trespass) throw std::logic_error(*done.trespass);
  std::vector<ConstBuffer> given;
  for (const PlaneData& p : library.inputs) given.push_back({&p.plane, p.bytes});
  try {
    library.subject->time(library.problem, given, 3, false);
  } catch (const std::runtime_error&) {}
  const auto sent = assay::json::parse(assay::json::dump(to_json(verdict)));
  if (!sent || !verdict_from_json(*sent)) throw std::logic_error("the verdict does not cross the pipe");
}
