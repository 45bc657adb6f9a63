// PTX text: its directives, and the bodies of its entries.
#include <string>

#include "fast/ptx/module.h"
#include "tests/fuzz/readers.h"

void assay::fuzz::ptx(std::string_view bytes) {
  try {
    ptx::Module module{std::string(bytes)};
    for (const std::string& name : module.entries()) try {
        module.entry(name).signature();
        module.kernel(name);
      } catch (const ptx::Fault&) {}
  } catch (const ptx::Fault&) {}
}
