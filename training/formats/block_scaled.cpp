#include "training/formats/block_scaled.h"

#include "training/formats/parts.h"

namespace assay::training {

std::vector<Field> BlockScaledStorage::fields() {
  return {{"_rowwise_data", &rowwise_data},
          {"_columnwise_data", &columnwise_data},
          {"_rowwise_scale_inv", &rowwise_scale_inv},
          {"_columnwise_scale_inv", &columnwise_scale_inv}};
}

std::vector<ArrayPtr> BlockScaledStorage::get_data_tensors(bool rowwise, bool columnwise) {
  return chosen(rowwise_data, columnwise_data, rowwise, columnwise);
}

std::vector<std::string> BlockScaledStorage::fsdp_buffer_fields() const {
  std::vector<std::string> out;
  if (rowwise_data) out.insert(out.end(), {"_rowwise_data", "_rowwise_scale_inv"});
  if (columnwise_data) out.insert(out.end(), {"_columnwise_data", "_columnwise_scale_inv"});
  return out;
}

Usages BlockScaledStorage::wanted(std::optional<bool> rowwise, std::optional<bool> columnwise) const {
  return {rowwise.value_or(rowwise_data != nullptr), columnwise.value_or(columnwise_data != nullptr)};
}

ArrayPtr BlockScaledStorage::decoded(Session& session, const assay::Quantizer& settings, Direction d,
                                     std::optional<DType> to) const {
  const bool rows = d == Direction::row;
  return dequantized(
      session, settings, d, size(), to.value_or(dtype),
      {rows ? rowwise_data : columnwise_data, rows ? rowwise_scale_inv : columnwise_scale_inv, nullptr});
}

}  // namespace assay::training
