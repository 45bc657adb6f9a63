#include "contract/encoding.h"
#include "contract/format.h"

namespace assay {

namespace {
template <class Table>
auto index_of_name(const Table& table, std::string_view name) -> std::optional<size_t> {
  for (size_t i = 0; i < table.size(); ++i)
    if (table[i].name == name) return i;
  return std::nullopt;
}
}  // namespace

std::optional<Encoding> encoding_named(std::string_view name) {
  if (auto i = index_of_name(kEncodings, name)) return static_cast<Encoding>(*i);
  return std::nullopt;
}

std::optional<FormatId> format_named(std::string_view name) {
  if (auto i = index_of_name(kFormats, name)) return static_cast<FormatId>(*i);
  return std::nullopt;
}

}  // namespace assay
